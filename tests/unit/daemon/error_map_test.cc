#include "daemon/api/error_map.h"

#include <gtest/gtest.h>

#include <map>

namespace ponder::daemon {
namespace {

TEST(ErrorMap, GivesEachCodeItsStatus) {
  const std::map<ErrorCode, int> expected = {{ErrorCode::bad_request, 400},
                                             {ErrorCode::context_length_exceeded, 400},
                                             {ErrorCode::unauthorized, 401},
                                             {ErrorCode::forbidden, 403},
                                             {ErrorCode::not_found, 404},
                                             {ErrorCode::job_unknown, 404},
                                             {ErrorCode::not_completed, 409},
                                             {ErrorCode::not_terminal, 409},
                                             {ErrorCode::idempotency_mismatch, 409},
                                             {ErrorCode::gone, 410},
                                             {ErrorCode::cancelled, 400},
                                             {ErrorCode::too_large, 413},
                                             {ErrorCode::unsupported_media, 415},
                                             {ErrorCode::queue_full, 429},
                                             {ErrorCode::storage, 503},
                                             {ErrorCode::loading, 503},
                                             {ErrorCode::model_missing, 503},
                                             {ErrorCode::stream_lost, 502},
                                             {ErrorCode::engine_error, 500},
                                             {ErrorCode::timed_out, 504},
                                             {ErrorCode::internal, 500}};
  for (const auto& [code, status] : expected)
    EXPECT_EQ(http_status(code), status) << to_string(code);
}

TEST(ErrorMap, SaysTheSameFieldsAlways) {
  const json::object body =
      error_body(Error{ErrorCode::not_completed, "no", "wait", "part", "abc"});
  EXPECT_EQ(body, *parse_json_object(R"({"error": {"type": "invalid_request_error",
    "code": "not_completed", "message": "no", "param": "part", "hint": "wait", "job_id": "abc"}})"));
  EXPECT_TRUE(error_body(Error{ErrorCode::internal, "x"}).at("error").at("param").is_null());
}

TEST(ErrorMap, TellsWhenTryingAgainHelps) {
  const auto has_retry_after = [](ErrorCode code) {
    for (const Header& h : error_response(Error{code, "x"}).headers)
      if (h.name == "Retry-After") return true;
    return false;
  };
  EXPECT_TRUE(has_retry_after(ErrorCode::queue_full));
  EXPECT_TRUE(has_retry_after(ErrorCode::loading));
  EXPECT_FALSE(has_retry_after(ErrorCode::bad_request));
}

// 503, for it is no fault of the request; but clients repeat a 503 by themselves.
TEST(ErrorMap, TellsClientsNotToRepeatWhatNeedsAModelFirst) {
  const auto told = [](ErrorCode code) {
    for (const Header& h : error_response(Error{code, "x"}).headers)
      if (h.name == "X-Should-Retry") return h.value;
    return std::string();
  };
  EXPECT_EQ(told(ErrorCode::model_missing), "false");
  EXPECT_EQ(told(ErrorCode::loading), "");
}

// The phrases by which clients recognise an overflow, and those by which they mistake it.
TEST(ErrorMap, SaysOverflowInTheWordsThatClientsKnow) {
  Error error{ErrorCode::context_length_exceeded, "whatever"};
  error.details = {{"n_prompt_tokens", 140211}, {"n_reserved", 1}, {"n_ctx", 131072}};
  const json::object body = error_body(error);
  const std::string message(body.at("error").at("message").as_string());
  for (const char* phrase :
       {"prompt is too long: 140211 tokens > 131072 maximum",
        "maximum context length is 131072 tokens", "exceeds the available context size"})
    EXPECT_NE(message.find(phrase), std::string::npos) << message;
  for (const char* phrase : {"rate limit", "per minute", "try again"})
    EXPECT_EQ(message.find(phrase), std::string::npos);
  EXPECT_EQ(body.at("error").at("n_prompt_tokens").as_int64(), 140211);
  EXPECT_EQ(body.at("error").at("n_reserved").as_int64(), 1);
  EXPECT_EQ(body.at("error").at("n_ctx").as_int64(), 131072);
}

}  // namespace
}  // namespace ponder::daemon
