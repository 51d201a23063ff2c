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
/// n other than 1, a response_format other than text, json_object and json_schema, audio. With a
/// schema the answer is one JSON text; tools stay in the prompt but cannot be called.
/// tool_choice: "none" drops the tools; "auto" keeps them; a named function keeps that one only;
/// "required" is taken as "auto" (the model is not forced), but needs a tool to choose from.
Result<ChatCall> read_chat_call(const json::object& body);

}  // namespace ponder::daemon
