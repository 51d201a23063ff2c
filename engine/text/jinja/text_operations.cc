#include "engine/text/jinja/text_operations.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/base/utf8.h"
#include "engine/text/jinja/text_search.h"

namespace ponder::text::jinja {
namespace {

constexpr std::int64_t kStepsPerPart = 4;

std::size_t read(std::string_view text, std::size_t at, char32_t& c) {
  return static_cast<std::size_t>(std::max(1, decode_utf8(text, at, c)));
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF) {  // sharp s is the one letter in common use whose capital is two
    out += "SS";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}
void append_lower(std::string& out, char32_t c) {
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}
void append_title(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "Ss";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

/// Maps character by character, inside each stretch of one origin. `map` appends and may keep
/// state from one character to the next.
template <class Map>
MarkedText map_characters(const MarkedText& text, Map map) {
  MarkedText result;
  text.for_each_stretch([&](std::string_view stretch, Origin origin) {
    std::string out;
    out.reserve(stretch.size());
    char32_t c = 0;
    for (std::size_t i = 0; i < stretch.size();) {
      i += read(stretch, i, c);
      map(out, c);
    }
    result.append(out, origin);
  });
  return result;
}

bool is_cased(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

/// Whether the character at `at` is one of `chars`.
std::size_t one_of_at(std::string_view text, std::size_t at, std::string_view chars) {
  char32_t c = 0;
  const std::size_t n = read(text, at, c);
  return chars.find(text.substr(at, n)) != std::string_view::npos ? n : 0;
}

std::size_t last_character(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
    --start;
  return start;
}

}  // namespace

MarkedText strip(const MarkedText& text, std::optional<std::string_view> chars, bool left,
                 bool right) {
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0, end = bytes.size();
  if (!chars) {
    if (left) begin = leading_space(bytes);
    if (right) end = std::max(begin, end - trailing_space(bytes));
    return text.slice(begin, end);
  }
  if (left)
    while (begin < end) {
      const std::size_t n = one_of_at(bytes, begin, *chars);
      if (n == 0) break;
      begin += n;
    }
  if (right)
    while (end > begin) {
      const std::size_t start = last_character(bytes, end);
      if (one_of_at(bytes, start, *chars) == 0) break;
      end = start;
    }
  return text.slice(begin, end);
}

MarkedText to_upper(const MarkedText& text) {
  return map_characters(text, append_upper);
}
MarkedText to_lower(const MarkedText& text) {
  return map_characters(text, append_lower);
}

MarkedText capitalize(const MarkedText& text) {
  bool first = true;
  return map_characters(text, [&](std::string& out, char32_t c) {
    first ? append_title(out, c) : append_lower(out, c);
    first = false;
  });
}

MarkedText title(const MarkedText& text) {
  bool inside = false;
  return map_characters(text, [&](std::string& out, char32_t c) {
    inside ? append_lower(out, c) : append_title(out, c);
    inside = is_cased(c);
  });
}

MarkedText title_by_space(const MarkedText& text) {
  bool inside = false;
  return map_characters(text, [&](std::string& out, char32_t c) {
    inside ? append_lower(out, c) : append_upper(out, c);
    inside = !(is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<');
  });
}

Outcome<MarkedText> replace(Meter& meter, const MarkedText& text, const MarkedText& from,
                            const MarkedText& to, std::int64_t count) {
  const std::string_view bytes = text.bytes();
  TRY_VOID(meter.work(4 * bytes.size()));
  MarkedText out;
  const auto append_new = [&]() -> Outcome<void> {
    TRY_VOID(meter.work(to.size() + 16));
    out.append(to);
    if (static_cast<std::int64_t>(out.size()) > meter.limits().output_bytes)
      return fault("the template makes a text of more than 16 MiB");
    return {};
  };
  std::size_t at = 0;
  for (; count != 0; --count) {
    if (from.empty()) {  // between all characters, and at both ends
      TRY_VOID(append_new());
      if (at >= bytes.size()) return out;
      char32_t c = 0;
      const std::size_t n = read(bytes, at, c);
      out.append(text, at, at + n);
      at += n;
      continue;
    }
    const std::size_t found = find_text(bytes, from.bytes(), at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    TRY_VOID(append_new());
    at = found + from.size();
  }
  out.append(text, at, bytes.size());
  return out;
}

Outcome<std::vector<MarkedText>> split(Meter& meter, const MarkedText& text,
                                       std::optional<std::string_view> separator,
                                       std::int64_t limit) {
  std::vector<MarkedText> parts;
  const std::string_view bytes = text.bytes();
  TRY_VOID(meter.work(4 * bytes.size()));
  std::size_t at = 0;
  if (separator) {
    for (; limit != 0; --limit) {
      const std::size_t found = find_text(bytes, *separator, at);
      if (found == std::string_view::npos) break;
      TRY_VOID(meter.step(kStepsPerPart));
      parts.push_back(text.slice(at, found));
      at = found + separator->size();
    }
    parts.push_back(text.slice(at, bytes.size()));
    return parts;
  }
  char32_t c = 0;
  while (true) {
    at += leading_space(bytes.substr(at));
    if (at >= bytes.size()) return parts;
    if (limit == 0) {
      parts.push_back(text.slice(at, bytes.size()));
      return parts;
    }
    TRY_VOID(meter.step(kStepsPerPart));
    std::size_t end = at;
    while (end < bytes.size()) {
      const std::size_t n = read(bytes, end, c);
      if (is_python_space(c)) break;
      end += n;
    }
    parts.push_back(text.slice(at, end));
    at = end;
    --limit;
  }
}

Outcome<std::vector<MarkedText>> split_from_right(Meter& meter, const MarkedText& text,
                                                  std::string_view separator, std::int64_t limit) {
  TRY(std::vector<MarkedText> parts, split(meter, text, separator, -1));
  if (limit < 0 || parts.size() <= static_cast<std::size_t>(limit) + 1) return parts;
  const std::size_t joined = parts.size() - static_cast<std::size_t>(limit);
  std::size_t end = 0;  // of the parts that stay together
  for (std::size_t i = 0; i < joined; ++i)
    end += parts[i].size() + (i ? separator.size() : 0);
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(joined));
  parts.insert(parts.begin(), text.slice(0, end));
  return parts;
}

Outcome<std::vector<MarkedText>> split_lines(Meter& meter, const MarkedText& text) {
  std::vector<MarkedText> lines;
  TRY_VOID(meter.work(8 * text.size()));
  const std::string_view bytes = text.bytes();
  std::size_t start = 0;
  char32_t c = 0;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t at = i;
    i += read(bytes, i, c);
    if (!is_line_end(c)) continue;
    TRY_VOID(meter.step(kStepsPerPart));
    lines.push_back(text.slice(start, at));
    if (c == '\r' && i < bytes.size() && bytes[i] == '\n') ++i;
    start = i;
  }
  if (start < bytes.size()) lines.push_back(text.slice(start, bytes.size()));
  return lines;
}

}  // namespace ponder::text::jinja
