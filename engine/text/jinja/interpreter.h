#pragma once
// Runs a parsed template over variables. One Interpreter per render; every step, byte and level
// is counted (meter.h).
#include "engine/base/json.h"
#include "engine/text/jinja/ast.h"

namespace ponder::text::jinja {

/// The text that the template writes for these variables, marked by origin. Variables named
/// bos_token, eos_token, pad_token and unk_token count as the template's own: they are the model
/// file's, and a template may only write them if they become special tokens.
Outcome<MarkedText> interpret(const Program& program, const json::object& variables,
                              const Limits& limits = {});

}  // namespace ponder::text::jinja
