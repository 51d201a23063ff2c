#include "engine/text/byte_alphabet.h"

#include <array>

#include "engine/base/utf8.h"

namespace ponder::text {
namespace {

constexpr char32_t kCodePoints = 0x144;  // 0x100 + 68

struct Alphabet {
  std::array<char32_t, 256> code_point{};
  std::array<int, kCodePoints> byte{};

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      code_point[static_cast<std::size_t>(b)] = c;
      byte[c] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

char32_t alphabet_code_point(unsigned char byte) {
  return alphabet().code_point[byte];
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  char32_t c = 0;
  for (std::size_t i = 0; i < token.size();) {
    const int n = decode_utf8(token, i, c);
    if (n == 0 || c >= kCodePoints || alphabet().byte[c] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().byte[c]);
    i += static_cast<std::size_t>(n);
  }
  return bytes;
}

std::string spell_bytes(std::string_view bytes) {
  std::string token;
  for (const char b : bytes)
    append_utf8(token, alphabet_code_point(static_cast<unsigned char>(b)));
  return token;
}

}  // namespace ponder::text
