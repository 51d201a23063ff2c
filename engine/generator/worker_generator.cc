// Long file: the supervisor is one state machine on one thread. Its parts (time, commands, the
// worker's life, the socket) share all of its state, and a split would only spread that.
#include "engine/generator/worker_generator.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/base/places.h"
#include "engine/base/sentence.h"
#include "engine/base/unique_fd.h"
#include "engine/generator/protocol.h"
#include "engine/generator/worker_fault.h"
#include "engine/generator/worker_process.h"
#include "engine/generator/worker_speed.h"

namespace ponder {
namespace {

using Time = std::chrono::steady_clock::time_point;
using Seconds = std::chrono::duration<double>;

constexpr double kPingEvery = 1.0;     // status() must be true within two seconds
constexpr double kAnswerWithin = 2.0;  // a pong later than this is worth a word in status()
constexpr double kLongLoad = 1.0;      // a load longer than this says for how long
constexpr double kLongLife = 10.0;     // a worker that lived this long does not count as quick
constexpr int kReapPatienceMs = 1000;

Time now() {
  return std::chrono::steady_clock::now();
}
double seconds_since(Time then) {
  return Seconds(now() - then).count();
}
Time after(Time then, double seconds) {
  return then + std::chrono::duration_cast<Time::duration>(Seconds(std::min(seconds, 1e8)));
}

/// A plan or tokenize call: its frame, and what to do with its reply or with an error.
struct Call {
  std::string frame;
  std::function<void(Result<PromptPlan>)> planned = {};
  std::function<void(Result<std::vector<std::int32_t>>)> tokenized = {};
  double wait_s = 1e8;  ///< for a worker that loads; never longer than load_wait_s
  Time deadline = {};
  bool sent = false;
  int deaths = 0;  ///< workers that died with this call

  void give_up(const Error& error) {
    if (planned) planned(fail(error));
    if (tokenized) tokenized(fail(error));
  }
};

Error being_stopped() {
  return {ErrorCode::loading, "the engine is being stopped", "try again when the daemon is back"};
}

struct Generation {
  std::shared_ptr<OutputSink> sink;
  std::string frame;   ///< until it is sent
  Time deadline = {};  ///< for being sent
  bool sent = false;
  bool started = false;
  bool cancelled = false;
  bool answer_now = false;
  Time asked = {};
  Time last_event = {};
  Time first_token = {};
  Usage usage = {};  ///< what was seen of it, for an end that the worker could not tell

  void count(const Delta& delta) {
    const auto n = static_cast<std::int64_t>(delta.tokens.size());
    if (n == 0) return;
    if (first_token == Time{}) {
      first_token = last_event;
      usage.ttft_s = Seconds(first_token - asked).count();
    }
    (delta.channel == Channel::reasoning ? usage.reasoning_tokens : usage.answer_tokens) += n;
    const double decode_s = Seconds(last_event - first_token).count();
    const std::int64_t made = usage.reasoning_tokens + usage.answer_tokens;
    if (decode_s > 0) usage.tokens_per_s = static_cast<double>(made - 1) / decode_s;
  }
};

// What other threads leave for the supervisor's. It makes the frames, too: that of a prompt of 5 MB
// takes 5 ms, for which the queue's thread would keep everybody waiting.
struct NewCall {
  protocol::CallId id;
  protocol::ToWorker message;
  Call call;
};
struct NewGeneration {
  GenerationId id;
  protocol::ToWorker message;
  std::shared_ptr<OutputSink> sink;
};
struct CancelGeneration {
  GenerationId id;
};
struct AnswerGeneration {
  GenerationId id;
};
struct Unload {
  std::function<void(Result<void>)> done;
};
using Command = std::variant<NewCall, NewGeneration, CancelGeneration, AnswerGeneration, Unload>;

/// Who ended it: the worker itself, or its supervisor.
enum class Cause { by_itself, bad_frame, stalled };

WorkerFault fault_of(const ProcessEnd& end, Cause cause, bool oom_killer_came) {
  switch (cause) {
    case Cause::bad_frame:
      return WorkerFault::garbled;
    case Cause::stalled:
      return WorkerFault::stalled;
    case Cause::by_itself:
      break;
  }
  return fault_of(end, oom_killer_came);
}

/// How a generation that ran in it ends.
Ended end_of(const Generation& g, WorkerFault fault, double stall_s) {
  Finish finish = rule_of(fault).finish;
  if (fault == WorkerFault::stalled && seconds_since(g.last_event) < stall_s)
    finish = Finish::worker_killed;
  if (g.cancelled) finish = Finish::cancelled;
  Ended ended{finish, g.usage, {}};
  if (finish == Finish::failed)
    ended.error = {ErrorCode::out_of_memory, "the engine ran out of memory",
                   "use a smaller prompt, a smaller --ctx or a smaller model"};
  return ended;
}

std::vector<std::string> arguments_of(const WorkerOptions& o) {
  const auto program =
      o.engine_program.empty() ? executable_dir() / "ponder-engine" : o.engine_program;
  std::vector<std::string> argv{program.string(), "worker"};
  const auto add = [&](const char* name, const std::string& value) {
    argv.insert(argv.end(), {name, value});
  };
  if (o.stub)
    argv.push_back("--stub");
  else
    add("--model", o.model_path.string());
  if (!o.model_id.empty()) add("--model-id", o.model_id);
  if (!o.model_class.empty()) add("--model-class", o.model_class);
  if (o.n_ctx > 0) add("--ctx", std::to_string(o.n_ctx));
  if (o.threads > 0) add("--threads", std::to_string(o.threads));
  if (!o.stub && !o.kv.empty()) add("--kv", o.kv);
  if (o.device_state_mib) add("--device-state-mib", std::to_string(*o.device_state_mib));
  if (o.host_state_mib) add("--host-state-mib", std::to_string(*o.host_state_mib));
  if (o.memory_mib) add("--memory-mib", std::to_string(*o.memory_mib));
  add("--sequences", std::to_string(std::clamp(o.sequences, 1, 1024)));
  if (o.context_mib) add("--context-mib", std::to_string(*o.context_mib));
  add("--spec", std::to_string(o.spec));
  add("--effort-tokens", fmt::format("{},{},{}", o.low_tokens, o.medium_tokens, o.xhigh_tokens));
  return argv;
}

}  // namespace

class WorkerGenerator::Supervisor {
 public:
  explicit Supervisor(WorkerOptions options) : options_(std::move(options)) {
    int ends[2];
    CHECK(::pipe(ends) == 0);
    for (const int fd : ends) {
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    wake_read_.reset(ends[0]);
    wake_write_.reset(ends[1]);
    status_.model.id = options_.model_id;
    status_.model.model_class = options_.model_class;
    status_.model.path = options_.model_path.string();
    status_.reason = "the engine is starting";
    thread_ = std::thread([this] { run(); });
  }

  ~Supervisor() { stop(); }

  void stop() {
    const std::lock_guard lock(stop_mutex_);
    stopping_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
    give_up_late_commands();
  }

  protocol::CallId new_call() { return next_call_++; }

  void post(Command command) {
    bool late = false;
    {
      const std::lock_guard lock(inbox_mutex_);
      inbox_.push_back(std::move(command));
      late = over_;
    }
    wake();
    if (late) give_up_late_commands();
  }

  GeneratorStatus status() const {
    const std::lock_guard lock(status_mutex_);
    GeneratorStatus s = status_;
    s.uptime_s = s.pid != 0 ? seconds_since(born_) : 0;
    if (s.state == GeneratorState::loading && s.uptime_s > kLongLoad)
      s.reason += fmt::format(" ({:.0f} s so far)", s.uptime_s);
    if (s.state == GeneratorState::loading && s.pid == 0 && retry_at_ != Time{}) {
      const double left = Seconds(retry_at_ - now()).count();
      s.reason += fmt::format("; trying again in {:.0f} s", std::max(0.0, std::ceil(left)));
    }
    const SpeedWatch::Speed speed = speed_.at(now());
    s.tokens_per_s = speed.now;
    s.usual_tokens_per_s = speed.usual;
    if (speed.slow) s.degraded.emplace_back("slow");
    return s;
  }

 private:
  void wake() {
    const char byte = 0;
    // A full pipe means that a wake-up is already on its way.
    [[maybe_unused]] const ssize_t n = ::write(wake_write_.get(), &byte, 1);
  }

  void run() {
    while (!stopping_) {
      take_commands();
      if (!worker_ && !failure_ && !asleep_ && now() >= next_birth_) start_worker();
      check_times();
      flush();
      wait();
    }
    end_everything();
    give_up_late_commands();
  }

  // --- time ---------------------------------------------------------------------------------

  int next_timeout_ms() const {
    Time next = Time::max();
    const auto at = [&](Time t) { next = std::min(next, t); };
    if (!worker_ && !failure_ && !asleep_) at(next_birth_);
    if (worker_ && !ready_) at(after(born_, options_.load_limit_s));
    if (ready_ && !ping_out_) at(after(last_pong_, kPingEvery));
    if (ready_ && ping_out_) at(after(last_ping_, slow_ ? options_.stall_s : kAnswerWithin));
    for (const auto& [id, call] : calls_)
      at(call.deadline);
    for (const auto& [id, g] : generations_)
      at(g.sent ? after(g.last_event, options_.stall_s) : g.deadline);
    if (next == Time::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }

  void wait() {
    pollfd fds[2] = {{wake_read_.get(), POLLIN, 0}, {-1, 0, 0}};
    if (worker_) {
      fds[1].fd = worker_->socket();
      fds[1].events = static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
    }
    if (::poll(fds, 2, next_timeout_ms()) <= 0) return;
    if (fds[0].revents) {
      char sink[256];
      while (::read(wake_read_.get(), sink, sizeof sink) > 0) {
      }
    }
    if (worker_ && (fds[1].revents & (POLLIN | POLLHUP | POLLERR))) read_socket();
  }

  void check_times() {
    const Time t = now();
    expire_waiting(t);
    if (!ready_) return check_loading(t);
    const bool stuck =
        std::any_of(generations_.begin(), generations_.end(), [&](const auto& entry) {
          return entry.second.sent && t >= after(entry.second.last_event, options_.stall_s);
        });
    if (stuck || (ping_out_ && t >= after(last_ping_, options_.stall_s))) {
      worker_over(Cause::stalled,
                  fmt::format("produced nothing for {:g} s and was replaced", options_.stall_s));
      return;
    }
    if (ping_out_ && !slow_ && t >= after(last_ping_, kAnswerWithin)) {
      slow_ = true;
      set_status(GeneratorState::ready, "the engine has not answered for more than 2 s");
    }
    if (!ping_out_ && t >= after(last_pong_, kPingEvery)) {
      ping_out_ = true;
      last_ping_ = t;
      oom_.look();
      send(protocol::encode(protocol::ToWorker(protocol::Ping{++pings_})).value());
    }
  }

  void check_loading(Time t) {
    if (!worker_) return;
    if (refused_) return worker_over(Cause::by_itself);  // whether it exits or not
    if (t < after(born_, options_.load_limit_s)) return;
    worker_->kill();
    worker_->reap(0);
    worker_.reset();
    become_failed(
        {ErrorCode::engine_error,
         fmt::format("the engine did not load the model within {:g} s", options_.load_limit_s),
         "put the file on a disk that answers, and start the daemon again"});
  }

  void expire_waiting(Time t) {
    std::vector<Call> late_calls;
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (t < it->second.deadline) {
        ++it;
        continue;
      }
      late_calls.push_back(std::move(it->second));
      it = calls_.erase(it);
    }
    std::vector<Generation> late;
    for (auto it = generations_.begin(); it != generations_.end();) {
      if (it->second.sent || t < it->second.deadline) {
        ++it;
        continue;
      }
      late.push_back(std::move(it->second));
      it = generations_.erase(it);
    }
    const Error loading{ErrorCode::loading, "the model is still loading", "try again in a moment"};
    const Error silent{ErrorCode::timed_out,
                       fmt::format("the engine did not answer within {:g} s", options_.stall_s),
                       "try again; raise stall_s in ponder.toml if this machine is slow"};
    for (Call& call : late_calls)
      call.give_up(call.sent ? silent : loading);
    for (Generation& g : late)
      g.sink->on_ended({Finish::failed, g.usage, loading});
  }

  // --- commands -----------------------------------------------------------------------------

  void take_commands() {
    std::vector<Command> commands;
    {
      const std::lock_guard lock(inbox_mutex_);
      commands.swap(inbox_);
    }
    for (Command& command : commands)
      std::visit([this](auto& c) { take(c); }, command);
  }

  void take(NewCall& c) {
    if (still_failed()) return c.call.give_up(*failure_);
    Result<std::string> frame = protocol::encode(c.message);
    if (!frame) return c.call.give_up(frame.error());
    if (!calls_.empty() && held_by_calls() + frame->size() > options_.max_call_bytes)
      return c.call.give_up({ErrorCode::queue_full, "too many prompts wait to be counted already",
                             "try again in a few seconds"});
    c.call.frame = std::move(*frame);
    c.call.wait_s = std::min(c.call.wait_s, options_.load_wait_s);
    c.call.deadline = after(now(), c.call.wait_s);
    const auto [it, fresh] = calls_.emplace(c.id, std::move(c.call));
    wake_up();
    if (ready_) send_call(it->second);
  }

  std::size_t held_by_calls() const {
    constexpr std::size_t kBesideFrame = 1024;  // so that small ones are bounded as well
    std::size_t bytes = 0;
    for (const auto& [id, call] : calls_)
      bytes += call.frame.size() + kBesideFrame;
    return bytes;
  }

  void take(NewGeneration& c) {
    if (still_failed()) return c.sink->on_ended({Finish::failed, {}, *failure_});
    if (generations_.contains(c.id))
      return c.sink->on_ended(
          {Finish::failed, {}, Error{ErrorCode::internal, "a generation of this id already runs"}});
    Result<std::string> frame = protocol::encode(c.message);
    if (!frame) return c.sink->on_ended({Finish::failed, {}, frame.error()});
    Generation g;
    g.sink = std::move(c.sink);
    g.frame = std::move(*frame);
    g.asked = now();
    g.deadline = after(g.asked, options_.load_wait_s);
    const auto [it, fresh] = generations_.emplace(c.id, std::move(g));
    wake_up();
    if (ready_) send_generation(c.id, it->second);
  }

  void take(CancelGeneration& c) {
    const auto it = generations_.find(c.id);
    if (it == generations_.end()) return;
    it->second.cancelled = true;
    if (it->second.sent) {
      send(protocol::encode(protocol::ToWorker(protocol::Cancel{c.id})).value());
      return;
    }
    const Generation g = std::move(it->second);
    generations_.erase(it);
    watch_speed();
    g.sink->on_ended({Finish::cancelled, g.usage, {}});
  }

  void take(AnswerGeneration& c) {
    const auto it = generations_.find(c.id);
    if (it == generations_.end()) return;
    it->second.answer_now = true;
    if (it->second.sent) send_answer_now(c.id);
  }

  void take(Unload& c) {
    if (!generations_.empty() || !calls_.empty())
      return c.done(fail(ErrorCode::not_terminal, "the model is at work",
                         "wait for what runs (ponder ps), or cancel it"));
    if (failure_ || asleep_ || !worker_) {
      if (!failure_) go_to_sleep();
      return c.done({});
    }
    worker_->reap(kReapPatienceMs);  // it ends by itself when its socket closes
    worker_.reset();
    ready_ = ping_out_ = slow_ = false;
    go_to_sleep();
    log_info("the model is unloaded; the next request loads it again");
    c.done({});
  }

  void go_to_sleep() {
    asleep_ = true;
    const std::lock_guard lock(status_mutex_);
    status_.pid = 0;
    status_.memory = {};
    status_.state = GeneratorState::ready;
    status_.reason.clear();
  }

  void wake_up() {
    if (!std::exchange(asleep_, false)) return;
    birth_is_planned_ = true;
    next_birth_ = {};
    set_status(GeneratorState::loading, "the engine is starting");
  }

  void send_answer_now(GenerationId id) {
    send(protocol::encode(protocol::ToWorker(protocol::AnswerNow{id})).value());
  }

  void send_call(Call& call) {
    call.sent = true;
    call.deadline = after(now(), options_.stall_s);
    send(call.frame);  // kept, to be sent again when this worker dies
  }

  void send_generation(GenerationId id, Generation& g) {
    g.sent = true;
    g.last_event = now();
    send(std::exchange(g.frame, {}));
    watch_speed();
    if (g.answer_now) send_answer_now(id);
  }

  // --- the worker ---------------------------------------------------------------------------

  void start_worker() {
    reader_ = {};
    forget_out();
    refused_.reset();
    Result<WorkerProcess> spawned = WorkerProcess::spawn(arguments_of(options_));
    if (!spawned) {
      if (births_ == 0) return become_failed(std::move(spawned).error());
      // The program ran before: it is being replaced on the disk, or the machine is short of
      // something. Neither makes the model unusable.
      log_warn(spawned.error().message);
      pause(pause_after(rule_of(WorkerFault::crashed), ++quick_deaths_, options_.pause_scale),
            spawned.error().message);
      return;
    }
    worker_.emplace(std::move(*spawned));
    ++births_;
    oom_.begin(worker_->pid());
    const std::lock_guard lock(status_mutex_);
    born_ = now();
    status_.device_lost = false;
    retry_at_ = {};
    speed_.begin_anew();
    status_.pid = worker_->pid();
    if (!std::exchange(birth_is_planned_, false)) ++status_.restarts;
    status_.state = GeneratorState::loading;
    if (status_.reason.empty()) status_.reason = "the engine is starting";
  }

  void set_status(GeneratorState state, std::string reason) {
    const std::lock_guard lock(status_mutex_);
    status_.state = state;
    status_.reason = std::move(reason);
  }

  /// No worker for so long, and why.
  void pause(double seconds, std::string reason, bool device_lost = false) {
    next_birth_ = after(now(), seconds);
    const std::lock_guard lock(status_mutex_);
    retry_at_ = next_birth_;
    status_.state = GeneratorState::loading;
    status_.reason = std::move(reason);
    status_.device_lost = device_lost;
  }

  /// The worker is of no use any more: ends it, tells everybody, plans the next one.
  void worker_over(Cause cause, const std::string& detail = {}) {
    const pid_t pid = worker_->pid();
    if (cause != Cause::by_itself) worker_->kill();
    const ProcessEnd end = worker_->reap(kReapPatienceMs);
    const bool was_ready = std::exchange(ready_, false);
    worker_.reset();
    ping_out_ = slow_ = false;

    const WorkerFault fault = fault_of(end, cause, oom_.came());
    std::string words = detail.empty() ? describe(end) : detail;
    if (const std::string_view more = rule_of(fault).words; !more.empty())
      words = fmt::format("{} ({})", more, words);
    log_warn(fmt::format("worker {} {}", pid, words));
    {
      const std::lock_guard lock(status_mutex_);
      status_.pid = 0;
      status_.memory = {};
      status_.last_error = fmt::format("worker {} {}", pid, words);
    }
    if (refused_ && is_passing(*refused_)) {
      words = refused_->message;
      refused_.reset();
      plan_next_birth(WorkerFault::out_of_memory, was_ready, words);
    } else if (refused_ || (fault == WorkerFault::unusable && !was_ready)) {
      become_failed(refused_.value_or(Error{ErrorCode::model_missing,
                                            "the engine cannot use this model; its log says why",
                                            "name another model file in ponder.toml"}));
      return;
    } else {
      plan_next_birth(fault, was_ready, words);
    }
    end_generations(fault);
    retry_calls(words);
  }

  /// A refusal that may not hold: a model that was served here found no memory this time.
  bool is_passing(const Error& refusal) const {
    return served_ && refusal.code == ErrorCode::out_of_memory;
  }

  void plan_next_birth(WorkerFault fault, bool was_ready, const std::string& words) {
    const FaultRule& rule = rule_of(fault);
    load_deaths_ = was_ready ? 0 : load_deaths_ + 1;
    // A model that could be loaded once is not given up because somebody kills its loading.
    const bool gives_up = rule.gives_up && !(fault == WorkerFault::killed && served_);
    if (load_deaths_ >= options_.max_load_deaths && gives_up) {
      become_failed({ErrorCode::engine_error,
                     fmt::format("the engine {} {} times in a row while loading the model", words,
                                 load_deaths_),
                     "see the daemon's log, or try another model file"});
      return;
    }
    quick_deaths_ = seconds_since(born_) >= kLongLife ? 1 : quick_deaths_ + 1;
    pause(pause_after(rule, quick_deaths_, options_.pause_scale),
          fmt::format("the engine {}", words), fault == WorkerFault::device_lost);
  }

  void end_generations(WorkerFault fault) {
    std::vector<std::pair<Ended, Generation>> over;
    for (auto it = generations_.begin(); it != generations_.end();) {
      if (!it->second.sent) {
        ++it;
        continue;
      }
      const Ended ended = end_of(it->second, fault, options_.stall_s);
      over.emplace_back(ended, std::move(it->second));
      it = generations_.erase(it);
    }
    for (const auto& [ended, g] : over)
      g.sink->on_ended(ended);
  }

  void retry_calls(const std::string& words) {
    std::vector<Call> given_up;
    for (auto it = calls_.begin(); it != calls_.end();) {
      Call& call = it->second;
      if (call.sent && ++call.deaths >= 2) {
        given_up.push_back(std::move(call));
        it = calls_.erase(it);
        continue;
      }
      if (call.sent) call.deadline = after(now(), call.wait_s);
      call.sent = false;
      ++it;
    }
    const Error error{ErrorCode::engine_error,
                      fmt::format("the engine {} while it counted the prompt", words),
                      "see `ponder doctor`; a shorter prompt or another model may do"};
    for (Call& call : given_up)
      call.give_up(error);
  }

  /// What tells one file from another, and from none.
  std::string file_now() const {
    struct stat s {};
    if (options_.stub || ::stat(options_.model_path.c_str(), &s) != 0) return {};
    return fmt::format("{} {} {} {}", s.st_dev, s.st_ino, s.st_size, s.st_mtime);
  }

  /// The failure is of the file as it was: another one in its place is tried.
  bool still_failed() {
    if (!failure_ || file_now() == failed_file_) return failure_.has_value();
    log_info("the model's file has changed; it is tried again");
    failure_.reset();
    load_deaths_ = quick_deaths_ = 0;
    next_birth_ = {};
    set_status(GeneratorState::loading, "the engine is starting");
    return false;
  }

  /// No worker until the model's file changes. Everybody who asks is told why, as model_missing:
  /// whatever a worker found wrong while it loaded is no fault of a request.
  void become_failed(Error error) {
    error.code = ErrorCode::model_missing;
    log_error(fmt::format("the engine cannot be used: {}", in_one_sentence(error)));
    failure_ = error;
    failed_file_ = file_now();
    {
      const std::lock_guard lock(status_mutex_);
      status_.state = GeneratorState::failed;
      status_.reason = in_one_sentence(error);
      status_.last_error = status_.reason;
      status_.pid = 0;
    }
    auto calls = std::exchange(calls_, {});
    auto generations = std::exchange(generations_, {});
    for (auto& [id, call] : calls)
      call.give_up(error);
    for (auto& [id, g] : generations)
      g.sink->on_ended({Finish::failed, g.usage, error});
  }

  void end_everything() {
    take_commands();
    ready_ = false;
    if (worker_) worker_->reap(kReapPatienceMs);  // it ends by itself when its socket closes
    worker_.reset();
    {
      const std::lock_guard lock(status_mutex_);
      status_.pid = 0;
    }
    auto calls = std::exchange(calls_, {});
    auto generations = std::exchange(generations_, {});
    const Error error = being_stopped();
    for (auto& [id, call] : calls)
      call.give_up(error);
    for (auto& [id, g] : generations)
      g.sink->on_ended({Finish::cancelled, g.usage, {}});
  }

  /// After the end, on any thread: nobody else will answer.
  void give_up_late_commands() {
    std::vector<Command> late;
    {
      const std::lock_guard lock(inbox_mutex_);
      over_ = true;
      late.swap(inbox_);
    }
    const Error error = being_stopped();
    for (Command& command : late) {
      if (auto* call = std::get_if<NewCall>(&command)) call->call.give_up(error);
      if (auto* start = std::get_if<NewGeneration>(&command))
        start->sink->on_ended({Finish::cancelled, {}, {}});
      if (auto* unload = std::get_if<Unload>(&command)) unload->done({});
    }
  }

  // --- the socket ---------------------------------------------------------------------------

  /// Its memory, too: a few large prompts at once are a hundred megabytes.
  void forget_out() {
    std::string().swap(out_);
    out_sent_ = 0;
  }

  void send(const std::string& frame) {
    out_ += frame;
    flush();
  }

  void flush() {
    while (worker_ && !out_.empty()) {
      const ssize_t n =
          ::send(worker_->socket(), out_.data() + out_sent_, out_.size() - out_sent_, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        // EAGAIN: later. Anything else: the worker is gone, and reading will say so.
        if (errno != EAGAIN) forget_out();
        return;
      }
      out_sent_ += static_cast<std::size_t>(n);
      if (out_sent_ == out_.size()) forget_out();
    }
  }

  void read_socket() {
    char bytes[64 << 10];
    // Bounded, so that a flood of output does not keep commands and clocks waiting.
    for (int round = 0; round < 16; ++round) {
      const ssize_t n = ::recv(worker_->socket(), bytes, sizeof bytes, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return worker_over(Cause::by_itself);
      reader_.feed({bytes, static_cast<std::size_t>(n)});
      if (Result<void> read = read_frames(); !read)
        return worker_over(Cause::bad_frame, "sent what it may not: " + read.error().message);
    }
  }

  Result<void> read_frames() {
    while (true) {
      TRY(const std::optional<protocol::Frame> frame, reader_.next());
      if (!frame) return {};
      TRY(const protocol::FromWorker message, protocol::decode_from_worker(*frame));
      TRY_VOID(std::visit([this](const auto& m) { return handle(m); }, message));
    }
  }

  static tl::unexpected<Error> out_of_turn(std::string_view what) {
    return fail(ErrorCode::engine_error, fmt::format("{} out of turn", what));
  }

  Result<void> handle(const protocol::Hello& m) {
    if (ready_ || refused_) return out_of_turn("a greeting");
    ready_ = served_ = true;
    load_deaths_ = 0;
    last_pong_ = now();
    {
      const std::lock_guard lock(status_mutex_);
      status_.state = GeneratorState::ready;
      status_.reason.clear();
      status_.model = m.model;
      status_.memory = m.memory;
    }
    for (auto& [id, call] : calls_)
      send_call(call);
    for (auto& [id, g] : generations_)
      send_generation(id, g);
    return {};
  }

  Result<void> handle(const protocol::Refused& m) {
    if (ready_ || refused_) return out_of_turn("a refusal");
    refused_ = m.error;
    return {};
  }

  Result<void> handle(const protocol::Planned& m) {
    const auto it = calls_.find(m.call);
    // Unknown: an answer that came after its call was given up.
    if (it == calls_.end()) return {};
    if (!it->second.planned) return out_of_turn("a plan");
    const Call call = std::move(it->second);
    calls_.erase(it);
    call.planned(m.plan);
    return {};
  }

  Result<void> handle(const protocol::Tokenized& m) {
    const auto it = calls_.find(m.call);
    if (it == calls_.end()) return {};
    if (!it->second.tokenized) return out_of_turn("ids");
    const Call call = std::move(it->second);
    calls_.erase(it);
    call.tokenized(m.ids);
    return {};
  }

  /// The generation that an event is for, if it may come now.
  Result<Generation*> addressed(GenerationId id, bool must_have_started) {
    const auto it = generations_.find(id);
    if (it == generations_.end() || !it->second.sent || (must_have_started && !it->second.started))
      return out_of_turn(fmt::format("an event of generation {}", id));
    it->second.last_event = now();
    return &it->second;
  }

  Result<void> handle(const protocol::Of<Started>& m) {
    TRY(Generation * g, addressed(m.id, false));
    if (g->started) return out_of_turn("a second start");
    g->started = true;
    g->usage.prompt_tokens = m.event.plan.prompt_tokens;
    g->usage.cached_tokens = m.event.cached_tokens;
    g->sink->on_started(m.event);
    return {};
  }

  Result<void> handle(const protocol::Of<PrefillProgress>& m) {
    TRY(Generation * g, addressed(m.id, true));
    g->sink->on_prefill(m.event);
    return {};
  }

  Result<void> handle(const protocol::Of<Delta>& m) {
    TRY(Generation * g, addressed(m.id, true));
    {
      const std::lock_guard lock(status_mutex_);
      speed_.tokens(g->last_event, static_cast<std::int64_t>(m.event.tokens.size()));
    }
    const bool first = g->first_token == Time{};
    g->count(m.event);
    if (first) watch_speed();
    g->sink->on_delta(m.event);
    return {};
  }

  Result<void> handle(const protocol::Of<ToolCallMade>& m) {
    TRY(Generation * g, addressed(m.id, true));
    g->sink->on_tool_call(m.event);
    return {};
  }

  Result<void> handle(const protocol::Of<Ended>& m) {
    const bool never_started = m.event.finish == Finish::failed ||
                               m.event.finish == Finish::cancelled ||
                               m.event.finish == Finish::no_memory;
    TRY(const Generation* g, addressed(m.id, !never_started));
    const std::shared_ptr<OutputSink> sink = g->sink;
    generations_.erase(m.id);
    watch_speed();
    quick_deaths_ = 0;
    sink->on_ended(m.event);
    return {};
  }

  Result<void> handle(const protocol::Memory& m) {
    if (!ready_) return out_of_turn("its memory");
    const std::lock_guard lock(status_mutex_);
    status_.memory = m.memory;
    return {};
  }

  Result<void> handle(const protocol::Pong& m) {
    if (!ping_out_ || m.number != pings_) return out_of_turn("a pong");
    ping_out_ = false;
    last_pong_ = now();
    if (std::exchange(slow_, false)) set_status(GeneratorState::ready, "");
    return {};
  }

  /// Time counts for the speed while every generation makes tokens.
  void watch_speed() {
    const bool all = !generations_.empty() &&
                     std::all_of(generations_.begin(), generations_.end(), [](const auto& entry) {
                       return entry.second.first_token != Time{};
                     });
    const std::lock_guard lock(status_mutex_);
    speed_.making_tokens(now(), all);
  }

  const WorkerOptions options_;
  UniqueFd wake_read_, wake_write_;
  std::atomic<protocol::CallId> next_call_{1};
  std::atomic<bool> stopping_{false};

  std::mutex inbox_mutex_;
  std::vector<Command> inbox_;  // guarded by inbox_mutex_, as is over_
  bool over_ = false;           ///< nobody takes commands any more
  std::mutex stop_mutex_;

  mutable std::mutex status_mutex_;
  GeneratorStatus status_;  // guarded by status_mutex_
  SpeedWatch speed_;        // guarded by status_mutex_
  Time born_ = {};          // these two are written under it by the supervisor's thread
  Time retry_at_ = {};

  // From here on the supervisor's thread only.
  std::map<protocol::CallId, Call> calls_;
  std::map<GenerationId, Generation> generations_;
  std::optional<WorkerProcess> worker_;
  protocol::FrameReader reader_;
  std::string out_;
  std::size_t out_sent_ = 0;
  bool ready_ = false;            ///< this worker has said Hello
  bool served_ = false;           ///< some worker has
  std::optional<Error> refused_;  ///< this worker has said Refused
  std::optional<Error> failure_;  ///< there will be no other worker of this file
  std::string failed_file_;       ///< which was this one
  OomWatch oom_;
  bool asleep_ = false;  ///< unloaded: no worker until somebody asks for one
  std::int64_t births_ = 0;
  bool birth_is_planned_ = true;  ///< the first, and the next after an unload
  int load_deaths_ = 0;
  int quick_deaths_ = 0;
  Time next_birth_ = {};
  std::uint64_t pings_ = 0;
  bool ping_out_ = false;
  bool slow_ = false;
  Time last_ping_ = {};
  Time last_pong_ = {};

  std::thread thread_;
};

WorkerGenerator::WorkerGenerator(WorkerOptions options)
    : supervisor_(std::make_unique<Supervisor>(std::move(options))) {}

WorkerGenerator::~WorkerGenerator() = default;

void WorkerGenerator::plan(GenerationRequest request,
                           std::function<void(Result<PromptPlan>)> done) {
  plan_within(Call().wait_s, std::move(request), std::move(done));
}

void WorkerGenerator::plan_within(double seconds, GenerationRequest request,
                                  std::function<void(Result<PromptPlan>)> done) {
  const protocol::CallId id = supervisor_->new_call();
  Call call;
  call.wait_s = seconds;
  call.planned = std::move(done);
  supervisor_->post(NewCall{id, protocol::PlanCall{id, std::move(request)}, std::move(call)});
}

void WorkerGenerator::tokenize(std::string text, bool special,
                               std::function<void(Result<std::vector<std::int32_t>>)> done) {
  const protocol::CallId id = supervisor_->new_call();
  Call call;
  call.tokenized = std::move(done);
  supervisor_->post(
      NewCall{id, protocol::TokenizeCall{id, std::move(text), special}, std::move(call)});
}

void WorkerGenerator::start(GenerationId id, GenerationRequest request,
                            std::shared_ptr<OutputSink> sink) {
  supervisor_->post(NewGeneration{id, protocol::Start{id, std::move(request)}, std::move(sink)});
}

void WorkerGenerator::cancel(GenerationId id) {
  supervisor_->post(CancelGeneration{id});
}

void WorkerGenerator::answer_now(GenerationId id) {
  supervisor_->post(AnswerGeneration{id});
}

void WorkerGenerator::unload(std::function<void(Result<void>)> done) {
  supervisor_->post(Unload{std::move(done)});
}

void WorkerGenerator::stop() {
  supervisor_->stop();
}

GeneratorStatus WorkerGenerator::status() const {
  return supervisor_->status();
}

}  // namespace ponder
