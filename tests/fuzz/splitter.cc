// What a model writes, split into thinking, answer and calls: the same outcome whether the text
// falls into the tokenizer's own tokens, into single bytes, or is cut in two at any point.
#include <variant>

#include "engine/base/check.h"
#include "engine/text/output_splitter.h"
#include "tests/unit/text/golden_files.h"

using namespace ponder;
using text::TokenId;

namespace {

// Pieces that lead into the machine's corners, chosen by single bytes of the input.
constexpr std::string_view kPieces[] = {
    "<think>",    "</think>", "\n",          "\n\n",        "<tool_call>", "</tool_call>",
    "<function=", "get>",     "</function>", "<parameter=", "city>",       "</parameter>",
    " ",          "<",        "</",          ">",           "a",           "{\"x\": 1}",
    "12",         "true",     "null",        "[1, 2]",      "\xc3\xa9",    "\xf0\x9f\x98\x80",
    "\xff",       "=",        "get",         "city",
};

std::string outcome_of(const std::vector<std::vector<TokenId>>& parts, bool thinking,
                       bool reads_calls) {
  static const json::array tools =
      parse_json(R"([{"type":"function","function":{"name":"get","parameters":{"type":"object",)"
                 R"("properties":{"city":{"type":"integer"}}}}}])")
          .value()
          .as_array();
  text::OutputSplitter splitter(text::pebble_tokenizer(), {thinking, tools, reads_calls, 7});
  std::vector<text::SplitEvent> events;
  for (const auto& part : parts)
    for (const TokenId id : part)
      splitter.push(id, events);
  splitter.finish(events);
  std::string out, channel;
  for (const text::SplitEvent& event : events) {
    if (const auto* piece = std::get_if<text::SplitText>(&event)) {
      const std::string now = piece->channel == Channel::reasoning ? "\nR:" : "\nA:";
      if (now != channel) out += now;
      channel = now;
      out += piece->text;
    } else {
      const auto& call = std::get<ToolCall>(event);
      channel.clear();
      out += "\nC:" + call.name + to_json(call.arguments);
    }
  }
  return out + (splitter.thinking_closed() ? "\nclosed" : "\nopen");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const text::Tokenizer& tokenizer = text::pebble_tokenizer();
  const bool thinking = data[0] & 1, reads_calls = !(data[0] & 2);
  std::string output;
  for (std::size_t i = 1; i < size && i < 200; ++i)
    output += kPieces[data[i] % std::size(kPieces)];
  const std::string want = outcome_of({tokenizer.encode(output, true)}, thinking, reads_calls);
  // Cutting inside the text of a special token makes plain tokens of its halves: the tags must be
  // known all the same.
  for (std::size_t cut = 0; cut <= output.size(); ++cut) {
    const std::string_view text(output);
    const std::string got = outcome_of(
        {tokenizer.encode(text.substr(0, cut), true), tokenizer.encode(text.substr(cut), true)},
        thinking, reads_calls);
    CHECK_MSG(got == want, "another outcome when the output is cut in two");
  }
  std::vector<TokenId> bytes;
  for (const char c : output)
    for (const TokenId id : tokenizer.encode(std::string_view(&c, 1), false))
      bytes.push_back(id);
  CHECK_MSG(outcome_of({bytes}, thinking, reads_calls) == want, "another outcome byte by byte");
  return 0;
}
