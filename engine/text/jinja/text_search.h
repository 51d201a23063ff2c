#pragma once
// Searching and measuring UTF-8 text, in linear time. Pure.
#include <cstddef>
#include <string_view>

namespace ponder::text::jinja {

/// The first place of `needle` at or after `from`, or npos. An empty needle is found at once.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from);

/// White space as Python's str.isspace() has it.
bool is_python_space(char32_t c);
/// Bytes of white space at the start and at the end of `text`.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// Moves the code point index `index` (counted from the end when negative, clamped as a Python
/// slice does) to a byte offset. `length` is the number of code points.
std::size_t clamped_offset(std::string_view text, long long index, long long length);

}  // namespace ponder::text::jinja
