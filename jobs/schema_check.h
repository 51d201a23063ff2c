#pragma once
// JSON Schema for answers: what a caller may ask for, and whether an answer fits. Pure.
//
// The subset is what can be checked in bounded time on text from a model: the draft-7 keywords but
// for patterns (the validator would run a backtracking regex, which can exhaust the stack) and
// references beyond the document. `format` and other annotations are not checked.
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::jobs {

/// The schema with its references written out and its annotations gone, for answer_fits_schema.
/// bad_request (param "schema") with a sentence on what is not supported: pattern,
/// patternProperties, remote or recursive $ref, more than 64 KiB, deeper than 32 levels.
Result<json::value> compile_schema(const json::value& schema);

/// `compiled` is from compile_schema. The answer is JSON, bare or in one fenced block. The error
/// says what does not fit, or that the check would take too long: then nobody can say that it fits.
Result<void> answer_fits_schema(const json::value& compiled, std::string_view answer);

/// The text inside the one fenced block that `answer` is or holds, else `answer` without the
/// white space around it.
std::string_view without_fence(std::string_view answer);

}  // namespace ponder::jobs
