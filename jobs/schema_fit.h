#pragma once
// Whether a JSON value fits a compiled schema (draft 7), in a bounded number of steps. Pure.
#include <cstdint>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::jobs {

/// A step takes some 30 ns: all of them, about a tenth of a second.
inline constexpr std::int64_t kMaxFitSteps = 4'000'000;

/// What a keyword with a value of its own must have in a schema: bad_request with a sentence.
Result<void> check_keyword(std::string_view word, const json::value& value);

/// `compiled` is from compile_schema: no references, and keywords that passed check_keyword().
/// bad_request says where and why the value does not fit; too_large: it was not found out within
/// `max_steps`.
Result<void> value_fits_schema(const json::value& compiled, const json::value& value,
                               std::int64_t max_steps = kMaxFitSteps);

}  // namespace ponder::jobs
