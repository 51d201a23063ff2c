// ponder health: how things stand, as one integer.
#include <fmt/format.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cpp/probe.h"
#include "engine/base/clock.h"

namespace ponder::cli {
namespace {
constexpr int kHealthMs = 10'000;

struct Options {
  bool strict = false;
  bool probe = false;
};

int health(Context& context, const Options& options) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  auto health = get_health(*daemon, &context.interrupt());
  if (!health) return context.failed(health.error());
  std::vector<std::string> lines = health_lines(*health);
  int exit_code = exit_code_of_health(*health, options.strict);
  if (options.probe) {
    const json::object report = client::probe(
        [&](const char* target, const json::value& body, int timeout_ms) {
          return daemon->call("POST", target, &body, timeout_ms, &context.interrupt());
        },
        system_clock());
    if (context.interrupt().triggered())
      return context.failed({ErrorCode::cancelled, "interrupted", {}});
    const bool ok = true_at(report, "ok");
    lines.push_back(
        ok ? fmt::format("probe: one token in {:.2f} s", number_at(report, "seconds").value_or(0))
           : "probe failed: " + text_at(report, "error"));
    if (!ok) exit_code = kNotYet;
    (*health)["probe"] = report;
  }
  if (context.json())
    context.document(*health);
  else
    context.out(fmt::format("{}\n", fmt::join(lines, "\n  ")));
  if (const std::string demo = demo_warning(*health); !demo.empty() && !context.json())
    context.say("ponder: " + demo);
  return exit_code;
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

std::vector<std::string> health_lines(const json::object& health) {
  std::vector<std::string> facts;
  if (const std::string model = text_at(health, "model.id"); !model.empty())
    facts.push_back("model " + model);
  if (const auto window = number_at(health, "model.n_ctx"))
    facts.push_back(fmt::format("window {:.0f}", *window));
  if (const auto running = number_at(health, "queue.running"))
    facts.push_back(fmt::format(
        "{:.0f} running, {:.0f} waiting", *running,
        number_at(health, "queue.ask").value_or(0) + number_at(health, "queue.batch").value_or(0)));
  if (const std::string degraded = words_at(health, "degraded"); !degraded.empty())
    facts.push_back("degraded: " + degraded);
  const auto speed = number_at(health, "engine.tokens_per_s");
  const auto usual = number_at(health, "engine.usual_tokens_per_s");
  if (speed) facts.push_back(fmt::format("{:.1f} tokens/s", *speed));
  if (usual) facts.push_back(fmt::format("usually {:.1f} tokens/s", *usual));
  const std::string known = fmt::format("{}", fmt::join(facts, ", "));

  const std::string first = text_at(health, "state");
  std::string reason = text_at(health, "reason");
  if (reason.empty()) return {known.empty() ? first : first + ": " + known};
  // A reason is a sentence, and then what to do about it.
  std::vector<std::string> lines;
  constexpr std::string_view kNext = "; ";
  for (std::size_t at; (at = reason.find(kNext)) != std::string::npos;
       reason.erase(0, at + kNext.size()))
    lines.push_back(reason.substr(0, at));
  lines.push_back(reason);
  lines.front() = first + ": " + lines.front();
  if (!known.empty()) lines.push_back(known);
  return lines;
}

std::string demo_warning(const json::object& health) {
  if (text_at(health, "model.class") != "demo") return {};
  return "demo model: not for real work; put a GGUF file into models/ and name it in ponder.toml "
         "or with --model";
}

Action declare_health(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.flag("--strict", options->strict, "degraded counts as not ready");
  arguments.flag("--probe", options->probe,
                 "also generate one token as a test; where that fails, it is not ready");
  return [options](Context& context) { return health(context, *options); };
}

}  // namespace ponder::cli
