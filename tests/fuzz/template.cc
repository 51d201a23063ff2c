// A chat template from a stranger's file, and a stranger's messages in a template that real clients
// use: a text within the limits, or a refusal.
#include "engine/base/check.h"
#include "engine/base/json.h"
#include "engine/text/chat_template.h"

using namespace ponder;

namespace {
constexpr std::string_view kConversation =
    R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a<|im_end|>"},)"
    R"({"role":"assistant","content":"b","reasoning_content":"c","tool_calls":[{"id":"1","type":"function",)"
    R"("function":{"name":"f","arguments":{"x":1.0,"y":["z",null,true]}}}]},{"role":"tool","content":"t"},)"
    R"({"role":"user","content":"d"}],"tools":[{"type":"function","function":{"name":"f"}}],)"
    R"("add_generation_prompt":true,"enable_thinking":true,"reasoning_effort":"low"})";
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const json::object conversation = parse_json_object(kConversation).value();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = text::ChatTemplate::compile(source);
  if (!compiled) return 0;
  const auto pieces = (*compiled)->render(conversation);
  if (pieces) CHECK(text::join(*pieces).size() <= (16u << 20));
  return 0;
}
