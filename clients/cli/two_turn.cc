#include "clients/cli/two_turn.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "engine/base/ids.h"

namespace ponder::cli {
namespace {

// A prompt long enough that reading it outweighs a request's fixed costs (some 10 ms), and short
// enough that a 27B model on two cores reads it in minutes.
constexpr std::int64_t kMostTokens = 4000;
constexpr std::int64_t kLeastTokens = 1000;
constexpr double kTimesCheaper = 10;

/// `lines` different lines after a first one that no daemon has seen before.
std::string long_text(std::int64_t lines) {
  std::string text = fmt::format("Inventory {}.\n", random_u64());
  for (std::int64_t i = 0; i < lines; ++i)
    text += fmt::format("Shelf {} holds {} boxes of part {}.\n", i + 1, 3 + i * 7 % 90,
                        100 + i * 37 % 899);
  return text + "How many boxes does shelf 1 hold?";
}

std::int64_t whole(const json::object& object, std::string_view path) {
  return static_cast<std::int64_t>(number_at(object, path).value_or(0));
}

struct Turn {
  double seconds = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  json::object message;
};

Result<Turn> ask(client::DaemonClient& daemon, const json::array& messages,
                 client::Interrupt* interrupt) {
  const json::value body = json::object{
      {"messages", messages}, {"max_tokens", 1}, {"temperature", 0}, {"reasoning_effort", "none"}};
  const auto began = std::chrono::steady_clock::now();
  TRY(const client::Response response,
      daemon.call("POST", "/v1/chat/completions", &body, 0, interrupt));
  Turn turn;
  turn.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (!response.body.is_object()) return fail(ErrorCode::internal, "the daemon sent no completion");
  const json::object& completion = response.body.as_object();
  turn.prompt_tokens = whole(completion, "usage.prompt_tokens");
  turn.cached_tokens = whole(completion, "usage.prompt_tokens_details.cached_tokens");
  for (const json::object& choice : objects_at(completion, "choices"))
    turn.message = object_at(choice, "message");
  return turn;
}

Result<std::int64_t> count_tokens(client::DaemonClient& daemon, const std::string& text,
                                  client::Interrupt* interrupt) {
  const json::value body = json::object{{"text", text}};
  TRY(const client::Response response,
      daemon.call("POST", "/v1/tokenize", &body, 60'000, interrupt));
  return response.body.is_object() ? whole(response.body.as_object(), "count") : 0;
}

std::string reason_of(const TwoTurnReport& report) {
  if (report.ratio() >= kTimesCheaper) return "";
  const std::int64_t read_again = report.second_tokens - report.cached_tokens;
  if (report.cached_tokens == 0)
    return "nothing of the first turn was found again: the whole prompt was read twice";
  if (read_again * 10 > report.second_tokens)
    return fmt::format("only {} of {} tokens were found again", report.cached_tokens,
                       report.second_tokens);
  return fmt::format(
      "{} of {} tokens were found again, yet the first token took {:.3f} s; another "
      "request may have held the engine",
      report.cached_tokens, report.second_tokens, report.warm_s);
}

}  // namespace

Result<TwoTurnReport> run_two_turn(client::DaemonClient& daemon, client::Interrupt* interrupt) {
  TRY(const json::object health, get_health(daemon, interrupt));
  const std::int64_t n_ctx = whole(health, "model.n_ctx");
  const std::int64_t wanted = std::min(kMostTokens, n_ctx - 200);
  if (wanted < kLeastTokens)
    return fail(ErrorCode::bad_request,
                fmt::format("a window of {} is too small for the two-turn test", n_ctx),
                fmt::format("start the daemon with --ctx {} or more", kLeastTokens + 200));
  TRY(const std::int64_t of_100, count_tokens(daemon, long_text(100), interrupt));
  const std::string text =
      long_text(std::max<std::int64_t>(1, wanted * 95 / std::max<std::int64_t>(1, of_100)));

  json::array messages{json::object{{"role", "user"}, {"content", text}}};
  TRY(const Turn cold, ask(daemon, messages, interrupt));
  messages.push_back(
      json::object{{"role", "assistant"}, {"content", text_at(cold.message, "content")}});
  messages.push_back(json::object{{"role", "user"}, {"content", "And shelf 2?"}});
  TRY(const Turn warm, ask(daemon, messages, interrupt));

  TwoTurnReport report{cold.prompt_tokens, cold.seconds, warm.prompt_tokens,
                       warm.cached_tokens, warm.seconds, ""};
  report.reason = reason_of(report);
  return report;
}

}  // namespace ponder::cli
