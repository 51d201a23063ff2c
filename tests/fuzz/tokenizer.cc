// Any bytes go through the tokenizer and come back; the incremental detokenizer says the same in
// whole characters.
#include "engine/text/tokenizer.h"
#include "engine/base/check.h"
#include "engine/base/utf8.h"
#include "tests/unit/text/golden_files.h"

using namespace ponder;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const text::Tokenizer& tokenizer = text::pebble_tokenizer();
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool special : {false, true}) {
    const std::vector<text::TokenId> ids = tokenizer.encode(bytes, special);
    CHECK(tokenizer.decode(ids) == bytes);
    if (!special)
      for (const text::TokenId id : ids)
        CHECK(!tokenizer.is_control(id));
    text::Detokenizer detokenizer(tokenizer);
    std::string text;
    for (const text::TokenId id : ids) {
      const std::string piece = detokenizer.push(id);
      CHECK(is_valid_utf8(piece));
      text += piece;
    }
    text += detokenizer.flush();
    if (is_valid_utf8(bytes)) CHECK(text == bytes);
  }
  return 0;
}
