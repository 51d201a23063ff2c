#pragma once
// UTF-8 by code point. Pure functions.
#include <cstdint>
#include <string>
#include <string_view>

namespace ponder {

/// Reads the code point at `text[at]` (at < size). Returns its length in bytes (1-4), or 0 if the
/// bytes there are not a valid sequence (overlong, surrogate, cut off, stray continuation).
int decode_utf8(std::string_view text, std::size_t at, char32_t& code_point);
void append_utf8(std::string& out, char32_t code_point);
bool is_valid_utf8(std::string_view text);
/// Code points in valid UTF-8.
std::int64_t count_code_points(std::string_view text);
/// The byte offset of code point number `n` (0-based), or text.size() if there are fewer.
std::size_t byte_offset_of(std::string_view text, std::int64_t n);
/// The length of the longest prefix that does not end in the middle of a sequence: the tail left
/// out is at most 3 bytes and could still become a character.
std::size_t complete_prefix(std::string_view text);
/// Every invalid byte replaced by U+FFFD.
std::string replace_invalid(std::string_view text);

}  // namespace ponder
