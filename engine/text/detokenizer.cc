#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"

namespace ponder::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The bytes that follow `first` in a well-formed sequence (Unicode 15, table 3-7), and the range
/// of the second byte; 0 for a byte that starts none.
struct Lead {
  std::size_t size = 0;
  unsigned char least = 0x80;
  unsigned char most = 0xBF;
};
Lead lead_of(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first >= 0xE1 && first <= 0xEF) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first >= 0xF1 && first <= 0xF3) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {first < 0x80 ? 1u : 0u, 0x80, 0xBF};
}

/// Moves whole characters from the front of `bytes` to `out`. A sequence that is cut off by the
/// end of `bytes` stays, unless `at_end`.
void take_characters(std::string& bytes, bool at_end, std::string& out) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const Lead lead = lead_of(static_cast<unsigned char>(bytes[i]));
    std::size_t good = 1;
    for (; good < lead.size && i + good < bytes.size(); ++good) {
      const auto next = static_cast<unsigned char>(bytes[i + good]);
      const bool second = good == 1;
      if (next < (second ? lead.least : 0x80) || next > (second ? lead.most : 0xBF)) break;
    }
    if (lead.size && good == lead.size) {
      out.append(bytes, i, good);
    } else if (lead.size && i + good == bytes.size() && !at_end) {
      break;
    } else {
      out += kReplacement;
    }
    i += good;
  }
  bytes.erase(0, i);
}

}  // namespace

std::string Detokenizer::push(TokenId id) {
  std::string text;
  held_ += tokenizer_.bytes_of(id);
  take_characters(held_, false, text);
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  take_characters(held_, true, text);
  return text;
}

}  // namespace ponder::text
