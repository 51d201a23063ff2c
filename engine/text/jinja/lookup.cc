#include "engine/text/jinja/lookup.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/utf8.h"
#include "engine/text/jinja/text_search.h"

namespace ponder::text::jinja {
namespace {

Value loop_attribute(const LoopState& loop, std::string_view name) {
  const auto at = static_cast<Int>(loop.at);
  const auto length = static_cast<Int>(loop.items->items.size());
  const auto& items = loop.items->items;
  if (name == "index0") return at;
  if (name == "index") return at + 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == length;
  if (name == "length") return length;
  if (name == "revindex") return length - at;
  if (name == "revindex0") return length - at - 1;
  if (name == "depth") return Int{loop.depth0} + 1;
  if (name == "depth0") return Int{loop.depth0};
  if (name == "previtem") return at == 0 ? Value() : items[loop.at - 1];
  if (name == "nextitem") return at + 1 == length ? Value() : items[loop.at + 1];
  return Value();
}

tl::unexpected<Fault> undefined_part(std::string_view what) {
  return fault(fmt::format("{} of a value that is not defined", what));
}

bool can_be_indexed(const List& list) {
  return list.kind == List::Kind::list || list.kind == List::Kind::tuple ||
         list.kind == List::Kind::range;
}

/// A slice's bounds over `length` elements, as Python computes them.
struct SliceBounds {
  Int start, stop, stride;
};
Outcome<SliceBounds> slice_bounds(Int length, const Value* start, const Value* stop,
                                  const Value* stride) {
  const auto number = [](const Value* value, Int& out) -> Outcome<bool> {
    if (!value || value->is_none()) return false;
    if (value->is_undefined()) return undefined_part("a slice");
    if (!value->as_int(out))
      return fault(fmt::format("a slice's bound is a {}", type_name(*value)));
    return true;
  };
  SliceBounds b{0, 0, 1};
  TRY_VOID(number(stride, b.stride));
  if (b.stride == 0) return fault("a slice's step is 0");
  b.stride = std::clamp(b.stride, -length - 1, length + 1);  // a longer step ends there too
  const bool forward = b.stride > 0;
  const Int low = forward ? 0 : -1, high = forward ? length : length - 1;
  TRY(const bool has_start, number(start, b.start));
  TRY(const bool has_stop, number(stop, b.stop));
  const auto clamp = [&](Int n) {
    if (n < 0) n = n < -length ? low : n + length;
    return std::clamp(n, low, std::max(low, high));
  };
  b.start = has_start ? clamp(b.start) : forward ? low : high;
  b.stop = has_stop ? clamp(b.stop) : forward ? high : low;
  return b;
}

}  // namespace

Outcome<Value> get_attribute(Context& context, const Value& value, std::string_view name) {
  if (value.is_undefined()) return undefined_part(fmt::format("'{}'", name));
  if (const Callable* method = find_method(value, name)) {
    TRY_VOID(context.meter().step());
    return Value(std::make_shared<const BoundMethod>(BoundMethod{value, method}));
  }
  if (const Dict* dict = value.dict()) {
    const Value* found = dict->find(name);
    return found ? *found : Value();
  }
  if (const auto* space = value.get<Namespace*>()) {
    const Value* found = (*space)->find(name);
    return found ? *found : Value();
  }
  if (const auto* loop = value.get<std::shared_ptr<LoopState>>())
    return loop_attribute(**loop, name);
  return Value();
}

Outcome<Value> get_item(Context& context, const Value& value, const Value& key) {
  if (value.is_undefined()) return undefined_part("an item");
  if (const Dict* dict = value.dict()) {
    TRY(const Value* const found, dict->find(context.meter(), key));
    if (found) return *found;
  }
  Int index = 0;
  if (const List* list = value.list(); list && can_be_indexed(*list) && key.as_int(index)) {
    const auto size = static_cast<Int>(list->items.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return Value();
    return list->items[static_cast<std::size_t>(index)];
  }
  if (const MarkedText* text = value.text(); text && key.as_int(index)) {
    TRY_VOID(context.meter().work(8 * text->size()));
    const Int length = count_code_points(text->bytes());
    if (index < 0) index += length;
    if (index < 0 || index >= length) return Value();
    const std::size_t begin = byte_offset_of(text->bytes(), static_cast<std::int64_t>(index));
    char32_t c = 0;
    const int n = decode_utf8(text->bytes(), begin, c);
    return context.maker().text(text->slice(begin, begin + static_cast<std::size_t>(n)));
  }
  if (const MarkedText* name = key.text()) return get_attribute(context, value, name->bytes());
  return Value();
}

Outcome<Value> get_slice(Context& context, const Value& value, const Value* start,
                         const Value* stop, const Value* stride) {
  if (value.is_undefined()) return undefined_part("a slice");
  if (const MarkedText* text = value.text()) {
    TRY_VOID(context.meter().work(8 * text->size()));
    const std::string_view bytes = text->bytes();
    const std::int64_t length = count_code_points(bytes);
    TRY(const SliceBounds b, slice_bounds(length, start, stop, stride));
    if (b.stride == 1) {
      const std::size_t begin = byte_offset_of(bytes, static_cast<std::int64_t>(b.start));
      const std::size_t end = byte_offset_of(bytes, static_cast<std::int64_t>(b.stop));
      return context.maker().text(begin < end ? text->slice(begin, end) : MarkedText());
    }
    std::vector<std::size_t> offsets;
    TRY_VOID(context.meter().step(length / 4));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if ((static_cast<unsigned char>(bytes[i]) & 0xC0) != 0x80) offsets.push_back(i);
    offsets.push_back(bytes.size());
    MarkedText picked;
    for (Int i = b.start; b.stride > 0 ? i < b.stop : i > b.stop; i += b.stride) {
      const auto at = static_cast<std::size_t>(i);
      picked.append(*text, offsets[at], offsets[at + 1]);
    }
    return context.maker().text(std::move(picked));
  }
  const List* list = value.list();
  if (!list || !can_be_indexed(*list))
    return fault(fmt::format("a {} cannot be sliced", type_name(value)));
  TRY(const SliceBounds b, slice_bounds(static_cast<Int>(list->items.size()), start, stop, stride));
  TRY_VOID(context.meter().step(static_cast<std::int64_t>(list->items.size() / 8)));
  std::vector<Value> picked;
  for (Int i = b.start; b.stride > 0 ? i < b.stop : i > b.stop; i += b.stride)
    picked.push_back(list->items[static_cast<std::size_t>(i)]);
  const bool tuple = list->kind == List::Kind::tuple;
  return context.maker().list(std::move(picked), tuple ? List::Kind::tuple : List::Kind::list);
}

}  // namespace ponder::text::jinja
