// str % arguments. The result is the caller's where a value was put in.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/utf8.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"

namespace ponder::text::jinja {
namespace {

constexpr int kMaxWidth = 1000;

struct Spec {
  bool left = false, zero = false, plus = false;
  int width = 0;
  int precision = -1;
  char conversion = 's';
};

/// Reads what follows the '%' at `at`, and moves `at` past it.
Outcome<Spec> read_spec(std::string_view format, std::size_t& at) {
  Spec spec;
  for (; at < format.size(); ++at) {
    if (format[at] == '-') {
      spec.left = true;
    } else if (format[at] == '0') {
      spec.zero = true;
    } else if (format[at] == '+') {
      spec.plus = true;
    } else {
      break;
    }
  }
  const auto number = [&] {
    int n = 0;
    for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at)
      n = std::min(kMaxWidth + 1, n * 10 + (format[at] - '0'));
    return n;
  };
  spec.width = number();
  if (at < format.size() && format[at] == '.') {
    ++at;
    spec.precision = number();
  }
  if (at >= format.size()) return fault("a format ends after its %");
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth) return fault("a format is too wide");
  spec.conversion = format[at++];
  return spec;
}

Outcome<std::string> convert(Meter& meter, const Spec& spec, const Value& value) {
  double d = 0;
  Int n = 0;
  switch (spec.conversion) {
    case 's': {
      MarkedText text;
      TRY_VOID(print(meter, value, text));
      return spec.precision < 0
                 ? text.bytes()
                 : text.bytes().substr(0, byte_offset_of(text.bytes(), spec.precision));
    }
    case 'r':
      return repr(meter, value);
    case 'd':
    case 'i':
    case 'x':
      if (value.get<double>() && spec.conversion != 'x') {
        d = std::trunc(*value.get<double>());
        if (!(std::abs(d) < 1e18)) return fault("a number is too large");
        n = static_cast<Int>(d);
      } else if (!value.as_int(n)) {
        return fault(
            fmt::format("%{} needs a number, not a {}", spec.conversion, type_name(value)));
      }
      if (spec.conversion == 'x') {
        if (n < 0 || n > Int{0x7FFFFFFFFFFFFFFF}) return fault("%x of such a number");
        return fmt::format("{:x}", static_cast<std::int64_t>(n));
      }
      return fmt::format("{}{}", spec.plus && n >= 0 ? "+" : "", format_int(n));
    case 'f':
      if (!value.as_double(d))
        return fault(fmt::format("%f needs a number, not a {}", type_name(value)));
      return fmt::format("{}{:.{}f}", spec.plus && d >= 0 ? "+" : "", d,
                         spec.precision < 0 ? 6 : spec.precision);
    default:
      return fault(fmt::format("the format %{} is not known", spec.conversion));
  }
}

std::string pad(std::string text, const Spec& spec) {
  const auto length = count_code_points(text);
  if (length >= spec.width) return text;
  const std::string fill(static_cast<std::size_t>(spec.width - length), ' ');
  if (spec.left) return text.append(fill);
  const bool numeric = spec.conversion != 's' && spec.conversion != 'r';
  if (!spec.zero || !numeric) return text.insert(0, fill);
  const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.insert(sign, std::string(fill.size(), '0'));
}

}  // namespace

Outcome<Value> percent_format(ValueMaker& maker, const MarkedText& format, const Value& arguments) {
  const std::string_view text = format.bytes();
  const List* tuple = arguments.list();
  if (tuple && tuple->kind != List::Kind::tuple) tuple = nullptr;
  const std::size_t given = tuple ? tuple->items.size() : 1;
  std::size_t used = 0;
  MarkedText out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t percent = std::min(text.find('%', at), text.size());
    out.append(format, at, percent);
    at = percent + 1;
    if (percent == text.size()) break;
    TRY(const Spec spec, read_spec(text, at));
    TRY_VOID(maker.meter().step());
    if (spec.conversion == '%') {
      out.append("%", Origin::template_source);
      continue;
    }
    if (used == given) return fault("not enough arguments for the format");
    TRY(std::string converted,
        convert(maker.meter(), spec, tuple ? tuple->items[used] : arguments));
    ++used;
    TRY_VOID(maker.meter().length(out.size() + converted.size()));
    out.append(pad(std::move(converted), spec), Origin::caller);
  }
  const bool unused_is_fine = !tuple && arguments.dict();
  if (used < given && !unused_is_fine) return fault("not all arguments of the format were used");
  return maker.text(std::move(out));
}

}  // namespace ponder::text::jinja
