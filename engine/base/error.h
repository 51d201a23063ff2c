#pragma once
// Expected failures as values. Every fallible function returns Result<T>; the one place that can
// answer (an HTTP handler, an MCP tool, a command) turns the Error into its own form.
// Broken invariants are CHECKs (check.h), not Errors.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace ponder {

enum class ErrorCode {
  bad_request,              ///< the caller's input is wrong
  context_length_exceeded,  ///< prompt + reserve > window; details hold the three numbers
  unauthorized,
  forbidden,
  not_found,
  job_unknown,
  not_completed,        ///< the answer of a job that did not complete was asked for
  not_terminal,         ///< the job must have ended first
  idempotency_mismatch, ///< same key, another body
  gone,                 ///< an expired job's result
  too_large,
  unsupported_media,
  queue_full,
  storage,       ///< the database or disk refused
  loading,       ///< the engine is not ready yet
  model_missing, ///< no such model file, or one that cannot be used
  out_of_memory,
  device_lost,
  engine_error,
  stream_lost, ///< output ended without the model's end token
  unreachable, ///< no daemon, and it may not or cannot be started
  timed_out,
  cancelled,
  interrupted,
  internal,
};

/// The code as it stands in JSON and logs, e.g. "context_length_exceeded".
std::string_view to_string(ErrorCode code);
/// The inverse; nullopt-like: returns internal for an unknown word.
ErrorCode error_code_from(std::string_view word);

/// What went wrong, in one sentence for a person, and what mends it.
/// Messages never hold secrets, prompts or SQL.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string hint = {};   ///< the fix, or empty
  std::string param = {};  ///< the field at fault, or empty
  std::string job_id = {}; ///< the job it is about, or empty
  std::map<std::string, std::int64_t> details = {}; ///< numbers, e.g. n_prompt_tokens
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(hint)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace ponder

#define PONDER_CONCAT_INNER(a, b) a##b
#define PONDER_CONCAT(a, b) PONDER_CONCAT_INNER(a, b)
/// TRY(auto x, f()): x is f()'s value, or the enclosing function returns f()'s Error.
#define TRY(declaration, expression) \
  TRY_IMPL(declaration, expression, PONDER_CONCAT(try_result_, __LINE__))
#define TRY_IMPL(declaration, expression, name)                    \
  auto name = (expression);                                        \
  if (!name) return ::tl::unexpected(std::move(name).error());     \
  declaration = std::move(*name)
/// TRY_VOID(f()): returns f()'s Error if there is one.
#define TRY_VOID(expression)                                                            \
  do {                                                                                  \
    if (auto try_void_result = (expression); !try_void_result)                          \
      return ::tl::unexpected(std::move(try_void_result).error());                      \
  } while (false)
