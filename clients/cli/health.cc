// ponder health: how things stand, as one integer.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"

namespace ponder::cli {
namespace {
constexpr int kHealthMs = 10'000;

int health(Context& context, bool strict) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const auto health = get_health(*daemon, &context.interrupt());
  if (!health) return context.failed(health.error());
  if (context.json())
    context.document(*health);
  else
    context.out(health_in_words(*health) + "\n");
  if (const std::string demo = demo_warning(*health); !demo.empty() && !context.json())
    context.say("ponder: " + demo);
  return exit_code_of_health(*health, strict);
}
}  // namespace

Result<json::object> get_health(client::DaemonClient& daemon, client::Interrupt* interrupt) {
  TRY(client::Response response, daemon.call("GET", "/health", nullptr, kHealthMs, interrupt));
  if (!response.body.is_object() || !response.body.as_object().contains("state"))
    return fail(ErrorCode::unreachable, "what listens there does not answer as a Ponder daemon",
                "check PONDER_URL or --home");
  return std::move(response.body.as_object());
}

int exit_code_of_health(const json::object& health, bool strict) {
  const std::string state = text_at(health, "state");
  if (state != "ready" && state != "busy") return kNotYet;
  return strict && !words_at(health, "degraded").empty() ? kNotYet : kDone;
}

std::string health_in_words(const json::object& health) {
  const std::string state = text_at(health, "state");
  std::string words = state;
  const auto add = [&words, &state](const std::string& more) {
    words += (words.empty() ? "" : words == state ? ": " : ", ") + more;
  };
  // A reason is a sentence and what to do about it, each for a line; so is the rest then.
  std::string head;
  if (const std::string reason = text_at(health, "reason"); !reason.empty()) {
    head = state + ": " + reason + "\n  ";
    constexpr std::string_view kNext = "; ";
    for (std::size_t at = 0; (at = head.find(kNext, at)) != std::string::npos;)
      head.replace(at, kNext.size(), "\n  ");
    words.clear();
  }
  if (const std::string model = text_at(health, "model.id"); !model.empty()) add("model " + model);
  if (const auto window = number_at(health, "model.n_ctx"))
    add(fmt::format("window {:.0f}", *window));
  if (const auto running = number_at(health, "queue.running"))
    add(fmt::format(
        "{:.0f} running, {:.0f} waiting", *running,
        number_at(health, "queue.ask").value_or(0) + number_at(health, "queue.batch").value_or(0)));
  if (const std::string degraded = words_at(health, "degraded"); !degraded.empty())
    add("degraded: " + degraded);
  if (!head.empty() && words.empty()) head.resize(head.find_last_not_of(" \n") + 1);
  return head + words;
}

std::string demo_warning(const json::object& health) {
  if (text_at(health, "model.class") != "demo") return {};
  return "demo model: not for real work; put a GGUF file into models/ and name it in ponder.toml "
         "or with --model";
}

Action declare_health(Arguments& arguments) {
  auto strict = std::make_shared<bool>(false);
  arguments.flag("--strict", *strict, "degraded counts as not ready");
  return [strict](Context& context) { return health(context, *strict); };
}

}  // namespace ponder::cli
