// health: the daemon as it is, without starting it.
#include <fmt/format.h>

#include <array>

#include "clients/cpp/probe.h"
#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr std::string_view kDefinition = R"json({
  "title": "Health",
  "description": "Whether the local model can be used: state (ready, busy, loading, stalled, failed, down), what is degraded, model and window, queue, versions. It never starts the daemon; the other tools start it when they need it. With probe it also makes the model generate one token.",
  "inputSchema": {
    "type": "object",
    "properties": {"probe": {"type": "boolean", "description": "Generate one token as a test."}},
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": true, "openWorldHint": false}
})json";

constexpr std::array<Argument, 1> kArguments{{{.name = "probe", .kind = Argument::Kind::flag}}};

constexpr int kTimeoutMs = 5'000;

std::string degraded_words(const json::object& health) {
  const json::value* list = health.if_contains("degraded");
  if (!list || !list->is_array() || list->get_array().empty()) return "no";
  std::string words;
  for (const json::value& each : list->get_array()) {
    if (!words.empty()) words += ", ";
    words += each.is_string() ? std::string(each.get_string()) : to_json(each);
  }
  return words;
}

std::string install_words(const ToolContext& context) {
  return fmt::format(
      "To use a real model: set model = \"/path/to/model.gguf\" in {}, then run: {} stop; {} "
      "start. "
      "To try one: {} stop; {} --detach --model /path/to/model.gguf",
      context.config_file, context.ponder, context.ponder, context.ponder, context.ponderd);
}

/// One token through the whole engine; says how long it took or what went wrong.
json::object probe(const ToolContext& context, ToolCall& call) {
  const json::value body = client::probe_request();
  const std::int64_t began_ms = context.clock.steady_ms();
  const auto answer = context.daemon.call("POST", client::kProbeTarget, &body,
                                          client::kProbeTimeoutMs, &call.interrupt);
  const double seconds = static_cast<double>(context.clock.steady_ms() - began_ms) / 1000;
  json::object report{{"ok", answer.has_value()}, {"seconds", seconds}, {"error", nullptr}};
  if (!answer) report["error"] = answer.error().message;
  return report;
}

ToolResult down(const ToolContext& context, const Error& error) {
  json::object health{{"state", "down"}, {"reason", error.message}, {"degraded", json::array{}}};
  for (const char* unknown :
       {"model", "engine", "queue", "store", "tcp", "version", "build", "uptime_s"})
    health[unknown] = nullptr;
  health["hint"] = with_full_command(context, error.hint);
  health["versions"] =
      json::object{{"ponderd", nullptr}, {"build", nullptr}, {"ponder_mcp", context.version}};
  std::string text = fmt::format("State: down. {}.\n", error.message);
  if (!error.hint.empty())
    text += fmt::format("To mend it: {}\n", with_full_command(context, error.hint));
  text += fmt::format(
      "ask, submit and status start the daemon unless its owner stopped it; in a "
      "shell: {} start\n---\ndown; ponder-mcp {}",
      context.ponder, context.version);
  return {std::move(text), std::move(health)};
}

ToolResult run(const ToolContext& context, ToolCall& call) {
  auto answer = context.daemon.health(kTimeoutMs, &call.interrupt);
  if (!answer) return down(context, answer.error());
  json::object health = std::move(*answer);
  const json::object model = object_of(health, "model");
  const json::object queue = object_of(health, "queue");
  const json::object engine = object_of(health, "engine");
  const bool is_demo = text_of(model, "class") == "demo";
  const std::string state = text_of(health, "state");

  std::string text = fmt::format("State: {}", state);
  if (const std::string reason = text_of(health, "reason"); !reason.empty())
    text += fmt::format(" ({})", reason);
  text += fmt::format(". Degraded: {}.\n", degraded_words(health));
  const std::string path = text_of(model, "path");
  text += fmt::format("Model: {}, window {} tokens{}.\n", text_of(model, "id"),
                      whole_of(model, "n_ctx"), path.empty() ? "" : ", " + path);
  text += fmt::format("Queue: {} running, {} asks and {} batch jobs waiting, at most {}.\n",
                      whole_of(queue, "running"), whole_of(queue, "ask"), whole_of(queue, "batch"),
                      whole_of(queue, "limit"));
  text += fmt::format("Engine: {}, {} restarts.\n", text_of(engine, "device"),
                      whole_of(engine, "restarts"));
  health["versions"] = json::object{{"ponderd", text_of(health, "version")},
                                    {"build", text_of(health, "build")},
                                    {"ponder_mcp", context.version}};
  text += fmt::format("Versions: ponderd {} ({}), ponder-mcp {}.\n", text_of(health, "version"),
                      text_of(health, "build"), context.version);
  if (flag_argument(call.arguments, "probe")) {
    json::object report = probe(context, call);
    text += flag_of(report, "ok")
                ? fmt::format("Probe: one token in {:.2f} s.\n", number_of(report, "seconds"))
                : fmt::format("Probe failed: {}\n", text_of(report, "error"));
    health["probe"] = std::move(report);
  }
  if (is_demo) {
    const std::string warning = "demo model: not for real work. " + install_words(context);
    text += fmt::format("The bundled model is a {}\n", warning);
    health["warning"] = warning;
  }
  text += fmt::format("---\n{}; model {}; window {}{}", state, text_of(model, "id"),
                      whole_of(model, "n_ctx"), is_demo ? "; demo model: not for real work" : "");
  return {std::move(text), std::move(health)};
}
}  // namespace

const Tool kHealthTool{"health", kDefinition, kArguments, run};

}  // namespace ponder::mcp
