// ponder restart: stop and start, so that the daemon reads its settings again.
#include "clients/cli/commands.h"

namespace ponder::cli {

Action declare_restart(Arguments& arguments) {
  // The same options as stop, but for --dry-run, which would start nothing either.
  auto now = std::make_shared<bool>(false);
  arguments.flag("--now", *now, "do not wait for the running step; kill after a few seconds");
  return [now](Context& context) {
    if (const int code = stop_daemon(context, *now); code != kDone) return code;
    return start_daemon(context);
  };
}

}  // namespace ponder::cli
