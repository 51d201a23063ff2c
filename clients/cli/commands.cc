#include "clients/cli/commands.h"

#include <array>

namespace ponder::cli {
namespace {
constexpr auto kCommands = std::to_array<Command>({
    {"ask", "ask a question and stream the answer", declare_ask},
    {"submit", "queue a job and print its id", declare_submit},
    {"continue", "go on from an earlier job, in a new one", declare_continue},
    {"ps", "list jobs", declare_ps},
    {"top", "the daemon and its jobs, refreshed", declare_top},
    {"status", "one screen about the daemon, or about one job", declare_status},
    {"show", "everything about one job", declare_show},
    {"logs", "what a job has written so far", declare_logs},
    {"wait", "wait until jobs have ended", declare_wait},
    {"result", "print a job's answer", declare_result},
    {"cancel", "cancel jobs", declare_cancel},
    {"rm", "delete jobs that have ended", declare_rm},
    {"prune", "let results go that were read", declare_prune},
    {"pin", "keep jobs from being pruned", declare_pin},
    {"unpin", "let jobs be pruned again", declare_unpin},
    {"health", "whether the daemon is ready, as one integer", declare_health},
    {"models", "the model that is served and the files at hand", declare_models},
    {"pull", "download a GGUF file into models/", declare_pull},
    {"start", "start the daemon, also after `ponder stop`", declare_start},
    {"stop", "stop the daemon and keep it stopped", declare_stop},
    {"restart", "stop and start the daemon", declare_restart},
    {"unload", "give the model's memory back until it is needed", declare_unload},
    {"serve", "run the daemon in the foreground", declare_serve},
    {"mcp", "serve agents over MCP on stdin and stdout", declare_mcp},
    {"doctor", "check the installation", declare_doctor},
    {"config", "every setting and where it came from", declare_config},
    {"completion", "a script that completes commands and ids in your shell", declare_completion},
    {"version", "versions of the client and the daemon", declare_version},
});
}  // namespace

std::span<const Command> all_commands() {
  return kCommands;
}

}  // namespace ponder::cli
