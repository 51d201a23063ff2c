#pragma once
// The body of POST /v1/chat/completions, read and checked. Pure.
#include "engine/generator/generator.h"

namespace ponder::daemon {

struct ChatCall {
  GenerationRequest request;
  bool stream = false;
  bool include_usage = false;
};

/// Reads the shared fields (engine/generator/chat_request.h) and those of this door alone.
/// Unknown fields are ignored; what is known and cannot be honoured is bad_request naming it:
/// n other than 1, log-probabilities, a response_format other than text, audio.
/// tool_choice: "none" drops the tools; "auto" keeps them; a named function keeps that one only;
/// "required" is taken as "auto" (the model is not forced), but needs a tool to choose from.
Result<ChatCall> read_chat_call(const json::object& body);

}  // namespace ponder::daemon
