#pragma once
// The table of commands: one file each, one line each in commands.cc.
#include <span>

#include "clients/cli/arguments.h"

namespace ponder::cli {

std::span<const Command> all_commands();

/// What `restart` is made of. Stopping says nothing where it goes well.
int stop_daemon(Context& context, bool now);
int start_daemon(Context& context);

Action declare_ask(Arguments& arguments);
Action declare_cancel(Arguments& arguments);
Action declare_completion(Arguments& arguments);
Action declare_config(Arguments& arguments);
Action declare_continue(Arguments& arguments);
Action declare_doctor(Arguments& arguments);
Action declare_health(Arguments& arguments);
Action declare_logs(Arguments& arguments);
Action declare_mcp(Arguments& arguments);
Action declare_models(Arguments& arguments);
Action declare_pin(Arguments& arguments);
Action declare_prune(Arguments& arguments);
Action declare_ps(Arguments& arguments);
Action declare_pull(Arguments& arguments);
Action declare_restart(Arguments& arguments);
Action declare_result(Arguments& arguments);
Action declare_rm(Arguments& arguments);
Action declare_serve(Arguments& arguments);
Action declare_show(Arguments& arguments);
Action declare_start(Arguments& arguments);
Action declare_status(Arguments& arguments);
Action declare_stop(Arguments& arguments);
Action declare_submit(Arguments& arguments);
Action declare_top(Arguments& arguments);
Action declare_unload(Arguments& arguments);
Action declare_unpin(Arguments& arguments);
Action declare_version(Arguments& arguments);
Action declare_wait(Arguments& arguments);

}  // namespace ponder::cli
