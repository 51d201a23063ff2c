#pragma once
// Ends the program when the process that started it dies. The end of input mostly says the same,
// but not where somebody else still holds the pipe: a sibling that inherited it, or a client behind
// a wrapper that was killed.
#include <sys/types.h>

#include <functional>

namespace ponder::mcp {

/// Calls `gone`, on a thread of its own, once the process `parent` (getppid() at the start) has
/// died. Nothing is watched if it is no longer the parent: a launcher that has left by now never
/// was the client. So call it when the first message has come.
void watch_parent(pid_t parent, std::function<void()> gone);

}  // namespace ponder::mcp
