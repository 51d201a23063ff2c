#include "engine/base/error.h"

#include <array>
#include <utility>

namespace ponder {
namespace {
constexpr std::array<std::pair<ErrorCode, std::string_view>, 25> kWords{{
    {ErrorCode::bad_request, "bad_request"},
    {ErrorCode::context_length_exceeded, "context_length_exceeded"},
    {ErrorCode::unauthorized, "unauthorized"},
    {ErrorCode::forbidden, "forbidden"},
    {ErrorCode::not_found, "not_found"},
    {ErrorCode::job_unknown, "job_unknown"},
    {ErrorCode::not_completed, "not_completed"},
    {ErrorCode::not_terminal, "not_terminal"},
    {ErrorCode::idempotency_mismatch, "idempotency_mismatch"},
    {ErrorCode::gone, "gone"},
    {ErrorCode::too_large, "too_large"},
    {ErrorCode::unsupported_media, "unsupported_media"},
    {ErrorCode::queue_full, "queue_full"},
    {ErrorCode::storage, "storage"},
    {ErrorCode::loading, "loading"},
    {ErrorCode::model_missing, "model_missing"},
    {ErrorCode::out_of_memory, "out_of_memory"},
    {ErrorCode::device_lost, "device_lost"},
    {ErrorCode::engine_error, "engine_error"},
    {ErrorCode::stream_lost, "stream_lost"},
    {ErrorCode::unreachable, "unreachable"},
    {ErrorCode::timed_out, "timed_out"},
    {ErrorCode::cancelled, "cancelled"},
    {ErrorCode::interrupted, "interrupted"},
    {ErrorCode::internal, "internal"},
}};
}  // namespace

std::string_view to_string(ErrorCode code) {
  for (const auto& [known, word] : kWords)
    if (known == code) return word;
  return "internal";
}

ErrorCode error_code_from(std::string_view word) {
  for (const auto& [code, known] : kWords)
    if (known == word) return code;
  return ErrorCode::internal;
}

}  // namespace ponder
