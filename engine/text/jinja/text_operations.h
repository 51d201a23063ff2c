#pragma once
// What templates do to strings, with the marks of who wrote which byte kept. Indices are bytes,
// lengths are not checked here: callers count the work first.
#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/jinja/marked_text.h"
#include "engine/text/jinja/meter.h"

namespace ponder::text::jinja {

/// str.strip(chars) and its one-sided kin; without `chars`, white space.
MarkedText strip(const MarkedText& text, std::optional<std::string_view> chars, bool left,
                 bool right);
MarkedText to_upper(const MarkedText& text);
MarkedText to_lower(const MarkedText& text);
/// The first character upper, the rest lower.
MarkedText capitalize(const MarkedText& text);
/// str.title(): a word starts after whatever is not a letter.
MarkedText title(const MarkedText& text);
/// Jinja2's title filter: a word starts after white space or one of -([{<.
MarkedText title_by_space(const MarkedText& text);

/// str.replace(from, to, count); every occurrence with a negative count.
Outcome<MarkedText> replace(Meter& meter, const MarkedText& text, const MarkedText& from,
                            const MarkedText& to, std::int64_t count);
/// str.split(separator, limit); by white space without one. No limit when negative. Splitting
/// makes many small strings, so each part is counted as it is made.
Outcome<std::vector<MarkedText>> split(Meter& meter, const MarkedText& text,
                                       std::optional<std::string_view> separator,
                                       std::int64_t limit);
/// str.rsplit with a separator.
Outcome<std::vector<MarkedText>> split_from_right(Meter& meter, const MarkedText& text,
                                                  std::string_view separator, std::int64_t limit);
/// str.splitlines().
Outcome<std::vector<MarkedText>> split_lines(Meter& meter, const MarkedText& text);

}  // namespace ponder::text::jinja
