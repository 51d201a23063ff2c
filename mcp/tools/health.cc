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

/// The words in the list under `key`, joined.
std::string list_words(const json::object& holder, std::string_view key) {
  const json::value* list = holder.if_contains(key);
  if (!list || !list->is_array()) return "";
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

/// "Speed: 8.1 tokens/s, usually 12.4.", as far as either was measured.
std::string speed_words(const json::object& engine) {
  const double now = number_of(engine, "tokens_per_s");
  const double usual = number_of(engine, "usual_tokens_per_s");
  if (now <= 0 && usual <= 0) return "";
  if (usual <= 0) return fmt::format("Speed: {:.1f} tokens/s.\n", now);
  if (now <= 0) return fmt::format("Speed: usually {:.1f} tokens/s.\n", usual);
  return fmt::format("Speed: {:.1f} tokens/s, usually {:.1f}.\n", now, usual);
}

std::string engine_words(const json::object& engine) {
  if (engine.empty()) return "";
  std::string words = fmt::format("Engine: {}, {} restarts", text_of(engine, "device"),
                                  whole_of(engine, "restarts"));
  if (const std::int64_t pid = whole_of(engine, "pid"); pid > 0)
    words += fmt::format(", process {}, up {:.0f} s", pid, number_of(engine, "uptime_s"));
  if (const std::string last = text_of(engine, "last_error"); !last.empty())
    words += ", last error: " + last;
  return words + ".\n";
}

/// The database and the TCP door: what a daemon tells those it trusts.
std::string daemon_words(const json::object& health) {
  std::string words;
  if (const json::object& store = object_of(health, "store"); !store.empty())
    words +=
        fmt::format("Store: {}, {} bytes free.\n", flag_of(store, "ok") ? "ok" : "refuses to write",
                    whole_of(store, "free_bytes"));
  if (const json::object& tcp = object_of(health, "tcp"); !tcp.empty()) {
    std::string addresses = list_words(tcp, "addresses");
    const std::string reason = text_of(tcp, "reason");
    if (addresses.empty()) addresses = "none";
    words += fmt::format("TCP: {}{}.\n", addresses, reason.empty() ? "" : "; " + reason);
  }
  if (has_field(health, "uptime_s"))
    words += fmt::format("Up: {:.0f} s.\n", number_of(health, "uptime_s"));
  return words;
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
  const std::string degraded = list_words(health, "degraded");
  text += fmt::format(". Degraded: {}.\n", degraded.empty() ? "no" : degraded);
  text += speed_words(engine);
  const std::string path = text_of(model, "path");
  text += fmt::format("Model: {} ({}), window {} tokens{}.\n", text_of(model, "id"),
                      text_of(model, "class"), whole_of(model, "n_ctx"),
                      path.empty() ? "" : ", " + path);
  text += fmt::format("Queue: {} running, {} asks and {} batch jobs waiting, at most {}.\n",
                      whole_of(queue, "running"), whole_of(queue, "ask"), whole_of(queue, "batch"),
                      whole_of(queue, "limit"));
  text += engine_words(engine) + daemon_words(health);
  health["versions"] = json::object{{"ponderd", text_of(health, "version")},
                                    {"build", text_of(health, "build")},
                                    {"ponder_mcp", context.version}};
  text += fmt::format("Versions: ponderd {} ({}), ponder-mcp {}.\n", text_of(health, "version"),
                      text_of(health, "build"), context.version);
  if (flag_argument(call.arguments, "probe")) {
    json::object report = client::probe(
        [&](const char* target, const json::value& body, int timeout_ms) {
          return context.daemon.call("POST", target, &body, timeout_ms, &call.interrupt);
        },
        context.clock);
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
