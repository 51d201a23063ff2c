// A worker for tests that breaks the protocol in the way that --model-id names. Started by
// WorkerGenerator in place of ponder-engine.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/generator/protocol.h"

namespace {

using namespace ponder;

int g_socket = -1;

void say(const std::string& bytes) {
  if (::send(g_socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) ::_exit(0);
}
void say(const protocol::FromWorker& message) {
  say(protocol::encode(message).value());
}

/// Reads frames until one of this kind.
template <class Message>
Message await() {
  static protocol::FrameReader reader;
  while (true) {
    if (auto frame = reader.next().value()) {
      auto message = protocol::decode_to_worker(*frame).value();
      if (auto* wanted = std::get_if<Message>(&message)) return *wanted;
      if (auto* ping = std::get_if<protocol::Ping>(&message)) say(protocol::Pong{ping->number});
      continue;
    }
    char bytes[4096];
    const ssize_t n = ::recv(g_socket, bytes, sizeof bytes, 0);
    if (n <= 0) ::_exit(0);
    reader.feed({bytes, static_cast<std::size_t>(n)});
  }
}

void hello() {
  say(protocol::Hello{protocol::kVersion, {"broken", "user", "", 4096, "cpu"}});
}

}  // namespace

int main(int argc, char** argv) {
  std::string how;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--fd") == 0) g_socket = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--model-id") == 0) how = argv[i + 1];
  }
  if (how == "crash_loading") std::abort();
  if (how == "device_lost_loading") return protocol::kExitDeviceLost;
  if (how == "out_of_memory_loading") return protocol::kExitOutOfMemory;
  if (how == "refuse") {
    say(protocol::Refused{Error{ErrorCode::engine_error, "this file is from Mars"}});
    return protocol::kExitModelUnusable;
  }
  if (how == "refuse_and_stay") {
    say(protocol::Refused{Error{ErrorCode::engine_error, "this file is from Mars"}});
    ::sleep(3600);
  }
  if (how == "noise_at_once") {
    say(std::string(1000, '\xEE'));
    ::pause();
  }
  if (how == "slow_loading") ::sleep(3600);
  hello();
  if (how == "two_hellos") hello();
  if (how == "exit3_on_plan") {
    await<protocol::PlanCall>();
    return 3;
  }
  const GenerationId id = await<protocol::Start>().id;
  if (how == "delta_first") say(protocol::Of<Delta>{id, {Channel::answer, "x", {1}}});
  say(protocol::Of<Started>{id, {}});
  say(protocol::Of<Delta>{id, {Channel::answer, "good", {1, 2}}});
  if (how == "noise") say(std::string(1000, '\xEE'));
  if (how == "bad_json") say(std::string("\x02\0\0\0\x47{]", 7));
  if (how == "unknown_type") say(std::string("\x02\0\0\0\x20{}", 7));
  if (how == "unknown_id") say(protocol::Of<Delta>{id + 1, {Channel::answer, "x", {1}}});
  if (how == "silent_close") {
    ::close(g_socket);
    ::sleep(3600);
  }
  if (how == "exit5") return 5;
  if (how == "out_of_memory") return protocol::kExitOutOfMemory;
  if (how == "segv") ::raise(SIGSEGV);
  if (how == "cut_frame") {
    say(std::string("\xFF\0\0\0\x47{", 6));
    return 0;
  }
  await<protocol::Cancel>();  // otherwise: silent, and deaf to cancel
  ::sleep(3600);
}
