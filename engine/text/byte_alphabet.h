#pragma once
// The printable alphabet in which byte-level vocabularies are written (GPT-2): bytes 0x21-0x7E,
// 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points, the other 68, in increasing order,
// are U+0100 + n. Pure.
#include <optional>
#include <string>
#include <string_view>

namespace ponder::text {

/// The code point that stands for `byte`.
char32_t alphabet_code_point(unsigned char byte);

/// The bytes that `token` spells, or nothing if it is not valid UTF-8 or holds a character that
/// is not in the alphabet.
std::optional<std::string> spelled_bytes(std::string_view token);

/// The inverse: `bytes` written in the alphabet.
std::string spell_bytes(std::string_view bytes);

}  // namespace ponder::text
