#include "engine/worker/worker_server.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>

#include "engine/base/log.h"
#include "engine/generator/protocol.h"

namespace ponder::worker {
namespace {

/// So many ids fit one frame whatever they are: ten digits and a comma each.
constexpr std::size_t kMostIds = (protocol::kMaxPayload - 256) / 11;

/// Writes whole frames, from any thread. _exit and not exit: the generator's threads still run,
/// and there is nothing to save.
class FrameWriter {
 public:
  explicit FrameWriter(int socket) : socket_(socket) {}

  void write(const protocol::FromWorker& message) {
    Result<std::string> frame = protocol::encode(message);
    if (!frame) {
      log_error("cannot tell the daemon: " + frame.error().message);
      ::_exit(1);
    }
    const std::lock_guard lock(mutex_);
    for (std::size_t done = 0; done < frame->size();) {
      const ssize_t n = ::send(socket_, frame->data() + done, frame->size() - done, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ::_exit(0);  // the daemon is gone
      done += static_cast<std::size_t>(n);
    }
  }

 private:
  const int socket_;
  std::mutex mutex_;
};

class FrameSink final : public OutputSink {
 public:
  FrameSink(GenerationId id, FrameWriter& out) : id_(id), out_(out) {}
  void on_started(const Started& e) override { out_.write(protocol::Of<Started>{id_, e}); }
  void on_prefill(const PrefillProgress& e) override {
    out_.write(protocol::Of<PrefillProgress>{id_, e});
  }
  void on_delta(const Delta& e) override { out_.write(protocol::Of<Delta>{id_, e}); }
  void on_tool_call(const ToolCallMade& e) override {
    out_.write(protocol::Of<ToolCallMade>{id_, e});
  }
  void on_ended(const Ended& e) override {
    if (e.error && e.error->code == ErrorCode::device_lost) {
      // A lost device stays lost for this process; every generation of it is over.
      log_error("the device is lost: " + e.error->message);
      ::_exit(protocol::kExitDeviceLost);
    }
    out_.write(protocol::Of<Ended>{id_, e});
  }

 private:
  const GenerationId id_;
  FrameWriter& out_;
};

class Server {
 public:
  Server(int socket, Generator& generator) : socket_(socket), out_(socket), generator_(generator) {}

  [[noreturn]] void run() {
    const GeneratorStatus status = generator_.status();
    out_.write(protocol::Hello{protocol::kVersion, status.model, status.memory});
    generator_.watch_memory(
        [this](const ContextMemory& memory) { out_.write(protocol::Memory{memory}); });
    protocol::FrameReader reader;
    char bytes[64 << 10];
    while (true) {
      const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ::_exit(0);
      reader.feed({bytes, static_cast<std::size_t>(n)});
      if (Result<void> done = take_frames(reader); !done) {
        log_error(done.error().message);
        ::_exit(1);
      }
    }
  }

 private:
  Result<void> take_frames(protocol::FrameReader& reader) {
    while (true) {
      TRY(const std::optional<protocol::Frame> frame, reader.next());
      if (!frame) return {};
      TRY(protocol::ToWorker message, protocol::decode_to_worker(*frame));
      std::visit([this](auto& m) { take(m); }, message);
    }
  }

  void take(protocol::PlanCall& m) {
    generator_.plan(std::move(m.request), [this, call = m.call](Result<PromptPlan> plan) {
      out_.write(protocol::Planned{call, std::move(plan)});
    });
  }
  void take(protocol::TokenizeCall& m) {
    generator_.tokenize(std::move(m.text), m.special,
                        [this, call = m.call](Result<std::vector<std::int32_t>> ids) {
                          // Else the frame could not be told, and that ends the process.
                          if (ids && ids->size() > kMostIds)
                            ids = fail(ErrorCode::too_large,
                                       fmt::format("the text has {} tokens; at most {} can be told",
                                                   ids->size(), kMostIds));
                          out_.write(protocol::Tokenized{call, std::move(ids)});
                        });
  }
  void take(protocol::Start& m) {
    generator_.start(m.id, std::move(m.request), std::make_shared<FrameSink>(m.id, out_));
  }
  void take(protocol::Cancel& m) { generator_.cancel(m.id); }
  void take(protocol::AnswerNow& m) { generator_.answer_now(m.id); }
  void take(protocol::Ping& m) { out_.write(protocol::Pong{m.number}); }

  const int socket_;
  FrameWriter out_;
  Generator& generator_;
};

}  // namespace

void refuse(int socket, const Error& error) {
  FrameWriter(socket).write(protocol::Refused{error});
}

void serve(UniqueFd socket, Generator& generator) try {
  Server(socket.get(), generator).run();
} catch (const std::bad_alloc&) {  // a frame too large for what is left
  log_error("an allocation failed while the daemon was read");
  ::_exit(protocol::kExitOutOfMemory);
}

}  // namespace ponder::worker
