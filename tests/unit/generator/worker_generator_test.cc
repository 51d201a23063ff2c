// The supervisor against real worker processes: the stub in ponder-engine, and one that breaks
// the protocol.
// Long file: one supervisor, and a test for each way in which its worker can end or be used.
#include "engine/generator/worker_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "engine/base/sanitized.h"
#include "engine/worker/stub_generator.h"
#include "tests/unit/generator/recording_sink.h"

namespace ponder {
namespace {

using test::ask;
using test::Heard;
using test::RecordingSink;
using test::run;
using testing::HasSubstr;

WorkerOptions stub_options() {
  WorkerOptions o;
  o.engine_program = PONDER_BIN_DIR "/ponder-engine";
  o.stub = true;
  o.n_ctx = 4096;
  o.pause_scale = 0.1;
  return o;
}

WorkerOptions broken_options(const std::string& how) {
  WorkerOptions o;
  o.engine_program = BROKEN_WORKER;
  o.model_id = how;
  o.pause_scale = 0.1;
  return o;
}

/// Looks at status() until it satisfies `condition`; a bound, not a pace.
bool wait_status(const Generator& g, const std::function<bool(const GeneratorStatus&)>& condition,
                 double seconds = 30) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition(g.status())) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}
bool is_ready(const GeneratorStatus& s) {
  return s.state == GeneratorState::ready;
}

bool process_lives(std::int64_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) == 0;
}

/// Starts a generation and waits for its first token.
std::shared_ptr<RecordingSink> begin(Generator& g, GenerationId id, GenerationRequest request) {
  auto sink = std::make_shared<RecordingSink>();
  g.start(id, std::move(request), sink);
  EXPECT_TRUE(sink->wait([](const Heard& h) { return !h.deltas.empty(); }));
  return sink;
}

/// Whether the model was freed. The promise is the callback's as well: get() may return before
/// set_value() has.
bool unload(Generator& g) {
  const auto done = std::make_shared<std::promise<bool>>();
  g.unload([done](Result<void> freed) { done->set_value(freed.has_value()); });
  return done->get_future().get();
}

TEST(WorkerGenerator, SaysTheSameAsTheGeneratorInItsProcess) {
  WorkerGenerator worker(stub_options());
  worker::StubGenerator direct(4096);
  for (const char* text : {"hello", "[[stub tokens=100 think=0]]", "[[stub fault=invalid_utf8]]"}) {
    const Heard got = run(worker, 1, ask(text))->heard();
    const Heard want = run(direct, 1, ask(text))->heard();
    EXPECT_EQ(got.text(Channel::answer), want.text(Channel::answer));
    EXPECT_EQ(got.text(Channel::reasoning), want.text(Channel::reasoning));
    EXPECT_EQ(got.tokens(), want.tokens());
    EXPECT_EQ(got.ended.at(0).finish, Finish::end_token);
    EXPECT_EQ(got.ended[0].usage.answer_tokens, want.ended.at(0).usage.answer_tokens);
  }
  EXPECT_EQ(test::plan(worker, ask("count me"))->prompt_tokens,
            test::plan(direct, ask("count me"))->prompt_tokens);
  EXPECT_EQ(test::tokenize(worker, "some text").value(),
            test::tokenize(direct, "some text").value());
  const auto over = test::plan(worker, ask(std::string(20000, 'x')));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::context_length_exceeded);
  EXPECT_EQ(over.error().details.at("n_ctx"), 4096);
}

TEST(WorkerGenerator, StatusNamesModelAndProcess) {
  WorkerGenerator worker(stub_options());
  ASSERT_TRUE(wait_status(worker, is_ready));
  const GeneratorStatus s = worker.status();
  EXPECT_EQ(s.model.id, "stub");
  EXPECT_EQ(s.model.n_ctx, 4096);
  EXPECT_TRUE(process_lives(s.pid));
  EXPECT_EQ(s.restarts, 0);
  EXPECT_EQ(s.reason, "");
}

TEST(WorkerGenerator, TheWorkerEndsWithItsOwner) {
  std::int64_t pid = 0;
  auto sink = std::make_shared<RecordingSink>();
  {
    WorkerGenerator worker(stub_options());
    ASSERT_TRUE(wait_status(worker, is_ready));
    pid = worker.status().pid;
    worker.start(1, ask("[[stub fault=hang]]"), sink);
  }
  EXPECT_FALSE(process_lives(pid));
  EXPECT_EQ(sink->finish(), Finish::cancelled);
}

TEST(WorkerGenerator, TheWorkerDiesWithAKilledOwner) {
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    auto* worker = new WorkerGenerator(stub_options());
    wait_status(*worker, is_ready);
    const std::int64_t pid = worker->status().pid;
    if (::write(report[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
    ::pause();
  }
  std::int64_t pid = 0;
  ASSERT_EQ(::read(report[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ASSERT_TRUE(process_lives(pid));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  // Nobody may reap it here, so "gone" is: no such process, or a zombie of init's.
  const auto gone = [&] {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    return !std::getline(stat, text) || text.find(") Z") != std::string::npos;
  };
  for (int i = 0; i < 2000 && !gone(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(gone());
}

TEST(WorkerGenerator, TheWorkerHasDefaultSignalsButForLostReaders) {
  // As in the daemon.
  const auto pipe_before = ::signal(SIGPIPE, SIG_IGN), hup_before = ::signal(SIGHUP, SIG_IGN);
  {
    WorkerGenerator worker(stub_options());
    ASSERT_TRUE(wait_status(worker, is_ready));
    std::ifstream status("/proc/" + std::to_string(worker.status().pid) + "/status");
    int seen = 0;
    for (std::string line; std::getline(status, line);) {
      const bool ignored = line.starts_with("SigIgn:");
      if (!ignored && !line.starts_with("SigBlk:")) continue;
      ++seen;
      // Signals 1 to 31; 32 and 33 are the C library's own.
      EXPECT_EQ(std::stoull(line.substr(7), nullptr, 16) & 0x7FFFFFFFu,
                ignored ? 1u << (SIGPIPE - 1) : 0u)
          << line;
    }
    EXPECT_EQ(seen, 2);
  }
  ::signal(SIGPIPE, pipe_before);
  ::signal(SIGHUP, hup_before);
}

TEST(WorkerGenerator, MoreTokensThanCanBeToldCostNobodyTheirWorker) {
  WorkerGenerator worker(stub_options());
  ASSERT_TRUE(wait_status(worker, is_ready));
  const std::int64_t pid = worker.status().pid;
  const auto ids = test::tokenize(worker, std::string(25u << 20, 'x'));
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::too_large);
  EXPECT_EQ(test::tokenize(worker, "some text")->size(), 3u);
  EXPECT_EQ(worker.status().pid, pid);
}

TEST(WorkerGenerator, HowItsWorkerEndedIsHowTheGenerationEnds) {
  WorkerGenerator worker(stub_options());
  struct Case {
    const char* marker;
    Finish finish;
  };
  GenerationId id = 1;
  for (const Case& c : {Case{"[[stub fault=crash after=30]]", Finish::worker_died},
                        Case{"[[stub fault=exit0 after=30]]", Finish::stream_lost},
                        Case{"[[stub fault=device_lost after=30]]", Finish::worker_killed}}) {
    const Heard h = run(worker, id, ask(c.marker))->heard();
    EXPECT_EQ(h.ended.at(0).finish, c.finish) << c.marker;
    EXPECT_EQ(h.tokens().size(), 30u) << c.marker;  // what was said before is kept
    EXPECT_EQ(h.ended[0].usage.reasoning_tokens, 20);
    EXPECT_EQ(h.ended[0].usage.answer_tokens, 10);
    // Only then a new worker is sure to be there.
    EXPECT_EQ(run(worker, id + 100, ask("again"))->finish(), Finish::end_token);
    EXPECT_EQ(worker.status().restarts, static_cast<std::int64_t>(id));
    ++id;
  }
  EXPECT_THAT(worker.status().last_error, HasSubstr("exited with code"));
}

TEST(WorkerGenerator, OutOfMemoryIsAFailureOfTheGenerationOnly) {
  WorkerGenerator worker(stub_options());
  const Ended ended = run(worker, 1, ask("[[stub fault=out_of_memory]]"))->heard().ended.at(0);
  EXPECT_EQ(ended.finish, Finish::failed);
  EXPECT_EQ(ended.error->code, ErrorCode::out_of_memory);
  EXPECT_EQ(worker.status().restarts, 0);
}

TEST(WorkerGenerator, KilledFromOutsideIsNobodysDoing) {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP}) {
    WorkerGenerator worker(stub_options());
    const auto sink = begin(worker, 1, ask("[[stub rate=100 tokens=100000]]"));
    ASSERT_EQ(::kill(static_cast<pid_t>(worker.status().pid), signal), 0);
    ASSERT_TRUE(sink->wait_end());
    EXPECT_EQ(sink->finish(), Finish::worker_killed) << signal;
  }
}

/// A field of /proc/PID/status, or "".
std::string proc_status(std::int64_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  return {};
}

TEST(WorkerGenerator, TheWorkerIsConfinedBeforeItReads) {
  WorkerGenerator worker(stub_options());
  ASSERT_TRUE(wait_status(worker, is_ready));
  const std::int64_t pid = worker.status().pid;
  EXPECT_EQ(proc_status(pid, "NoNewPrivs"), "1");
  EXPECT_EQ(proc_status(pid, "Seccomp"), "2");
  std::ifstream score("/proc/" + std::to_string(pid) + "/oom_score_adj");
  int adjusted = 0;
  EXPECT_TRUE(score >> adjusted);
  EXPECT_EQ(adjusted, 500);
}

TEST(WorkerGenerator, TheWorkerHoldsNoDescriptorOfItsOwner) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // not close-on-exec, as a careless library would
  WorkerGenerator worker(stub_options());
  ASSERT_TRUE(wait_status(worker, is_ready));
  std::vector<std::string> open;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(worker.status().pid) + "/fd"))
    open.push_back(std::filesystem::read_symlink(entry.path()).string());
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(open.size(), 4u) << testing::PrintToString(open);
  EXPECT_EQ(std::count_if(open.begin(), open.end(),
                          [](const std::string& to) { return to.starts_with("socket:"); }),
            1);
}

// ollama#5464: a device that is lost after a suspend, seen when the next worker begins.
TEST(WorkerGenerator, ADeviceThatIsGoneIsWaitedForHoweverLong) {
  WorkerOptions o = broken_options("device_lost_loading");
  o.max_load_deaths = 2;
  o.pause_scale = 0.02;
  WorkerGenerator worker(o);
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) { return s.restarts >= 4; }));
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) { return s.device_lost; }));
  const GeneratorStatus s = worker.status();
  EXPECT_EQ(s.state, GeneratorState::loading);
  EXPECT_THAT(s.reason, HasSubstr("lost its device"));
  EXPECT_THAT(s.reason, HasSubstr("trying again in"));
}

TEST(WorkerGenerator, NoMemoryToLoadIsWaitedForToo) {
  WorkerOptions o = broken_options("out_of_memory_loading");
  o.max_load_deaths = 2;
  o.pause_scale = 0.02;
  WorkerGenerator worker(o);
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) { return s.restarts >= 4; }));
  EXPECT_EQ(worker.status().state, GeneratorState::loading);
  EXPECT_THAT(worker.status().last_error, HasSubstr("ran out of memory"));
}

TEST(WorkerGenerator, AWorkerWithoutMemoryFailsItsGenerationsWithThatReason) {
  WorkerGenerator worker(broken_options("out_of_memory"));
  const Ended ended = run(worker, 1, ask("x"))->heard().ended.at(0);
  EXPECT_EQ(ended.finish, Finish::failed);
  ASSERT_TRUE(ended.error);
  EXPECT_EQ(ended.error->code, ErrorCode::out_of_memory);
}

TEST(WorkerGenerator, AFrameThatFindsNoMemoryIsNoCrash) {
  if (kSanitized) GTEST_SKIP() << "sanitized builds have no memory limit";
  WorkerOptions o = stub_options();
  o.memory_mib = 64;
  WorkerGenerator worker(o);
  const auto sink = begin(worker, 1, ask("[[stub rate=100 tokens=100000]]"));
  const auto ids = test::tokenize(worker, std::string(30u << 20, 'x'));
  EXPECT_FALSE(ids);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->heard().ended.at(0).error.value().code, ErrorCode::out_of_memory);
  EXPECT_THAT(worker.status().last_error, HasSubstr("ran out of memory"));
  EXPECT_EQ(run(worker, 2, ask("x"))->finish(), Finish::end_token);
}

TEST(WorkerGenerator, StopAnswersEverybodyAlsoForADeafWorkerAndLateCallers) {
  WorkerGenerator worker(stub_options());
  const auto sink = begin(worker, 1, ask("[[stub rate=100 tokens=100000]]"));
  const std::int64_t pid = worker.status().pid;
  ::kill(static_cast<pid_t>(pid), SIGSTOP);
  worker.stop();
  EXPECT_EQ(sink->finish(), Finish::cancelled);
  EXPECT_FALSE(process_lives(pid));
  EXPECT_EQ(run(worker, 2, ask("late"))->finish(), Finish::cancelled);
  EXPECT_FALSE(test::plan(worker, ask("late")));
  worker.stop();
}

TEST(WorkerGenerator, ATenthOfTheUsualSpeedIsSaid) {
  WorkerGenerator worker(stub_options());
  for (GenerationId id = 1; id < 4; ++id)
    run(worker, id, ask("[[stub tokens=300 think=0]]"));
  EXPECT_GT(worker.status().usual_tokens_per_s, 500);
  EXPECT_TRUE(worker.status().degraded.empty());
  auto slow =
      begin(worker, 9, ask("[[stub tokens=300 think=0 rate=100]] [[stub fault=slow after=5]]"));
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) {
    return s.degraded == std::vector<std::string>{"slow"};
  }));
  EXPECT_LT(worker.status().tokens_per_s, 100);
}

TEST(WorkerGenerator, StatusIsTrueWithinTwoSecondsOfADeath) {
  WorkerGenerator worker(stub_options());
  ASSERT_TRUE(wait_status(worker, is_ready));
  const std::int64_t pid = worker.status().pid;
  ::kill(static_cast<pid_t>(pid), SIGKILL);
  EXPECT_TRUE(wait_status(
      worker, [&](const GeneratorStatus& s) { return s.pid != pid; }, 2));
  ASSERT_TRUE(wait_status(worker, is_ready));
  EXPECT_EQ(worker.status().restarts, 1);
  EXPECT_THAT(worker.status().last_error, HasSubstr("signal 9"));
}

TEST(WorkerGenerator, AStoppedWorkerIsNamedAndThenReplaced) {
  WorkerOptions o = stub_options();
  o.stall_s = 3;
  WorkerGenerator worker(o);
  ASSERT_TRUE(wait_status(worker, is_ready));
  const std::int64_t pid = worker.status().pid;
  ::kill(static_cast<pid_t>(pid), SIGSTOP);
  EXPECT_TRUE(wait_status(
      worker, [](const GeneratorStatus& s) { return !s.reason.empty(); }, 10));
  EXPECT_TRUE(
      wait_status(worker, [&](const GeneratorStatus& s) { return is_ready(s) && s.pid != pid; }));
  EXPECT_EQ(run(worker, 1, ask("x"))->finish(), Finish::end_token);
}

TEST(WorkerGenerator, AHangIsStalledAndTheOthersAreKilled) {
  WorkerOptions o = stub_options();
  o.stall_s = 2;  // `other` never pauses for so long, on a busy machine either
  WorkerGenerator worker(o);
  const auto other = begin(worker, 1, ask("[[stub rate=100 tokens=100000]]"));
  const auto hung = begin(worker, 2, ask("[[stub fault=hang after=3]]"));
  ASSERT_TRUE(hung->wait_end());
  ASSERT_TRUE(other->wait_end());
  EXPECT_EQ(hung->finish(), Finish::stalled);
  EXPECT_EQ(hung->heard().tokens().size(), 3u);
  EXPECT_EQ(other->finish(), Finish::worker_killed);
  EXPECT_EQ(run(worker, 3, ask("x"))->finish(), Finish::end_token);
}

TEST(WorkerGenerator, PrefillProgressIsNoStall) {
  WorkerOptions o = stub_options();
  o.stall_s = 2;
  WorkerGenerator worker(o);
  EXPECT_EQ(run(worker, 1, ask("[[stub prefill_s=4]]"))->finish(), Finish::end_token);
}

TEST(WorkerGenerator, CancelEndsAtOnceAndIsIgnoredForOthers) {
  WorkerGenerator worker(stub_options());
  const auto sink = begin(worker, 1, ask("[[stub rate=20 tokens=100000 think=0]]"));
  worker.cancel(7);
  worker.cancel(1);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->finish(), Finish::cancelled);
  worker.cancel(1);
  EXPECT_EQ(sink->heard().after_end, 0);
  EXPECT_EQ(worker.status().restarts, 0);
}

TEST(WorkerGenerator, ManyGenerationsAtOnceFromManyThreads) {
  WorkerGenerator worker(stub_options());
  constexpr int kThreads = 4, kEach = 16;
  std::vector<std::thread> threads;
  std::atomic<int> whole{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (int i = 0; i < kEach; ++i) {
        sinks.push_back(std::make_shared<RecordingSink>());
        worker.start(static_cast<GenerationId>(t * kEach + i), ask("number " + std::to_string(i)),
                     sinks.back());
      }
      for (const auto& sink : sinks)
        if (sink->wait_end() && sink->finish() == Finish::end_token &&
            sink->heard().tokens().size() == 60)
          ++whole;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(whole, kThreads * kEach);
}

// CVE-2026-43631 (llama.cpp): an unload freed what a request was using.
TEST(WorkerGenerator, AnUnloadNeverTakesTheModelFromARequest) {
  WorkerGenerator worker(stub_options());
  std::atomic<bool> over{false};
  std::atomic<int> refused{0}, unloaded{0};
  std::thread unloader([&] {
    while (!over) {
      ++(unload(worker) ? unloaded : refused);
    }
  });
  constexpr int kThreads = 4, kEach = 10;
  std::vector<std::thread> clients;
  std::atomic<int> whole{0};
  for (int t = 0; t < kThreads; ++t)
    clients.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto id = static_cast<GenerationId>(t * kEach + i + 1);
        if (run(worker, id, ask("number " + std::to_string(id)))->finish() == Finish::end_token)
          ++whole;
      }
    });
  for (std::thread& client : clients)
    client.join();
  over = true;
  unloader.join();
  EXPECT_EQ(whole, kThreads * kEach);
  EXPECT_GT(unloaded, 0);
  EXPECT_EQ(worker.status().restarts, 0);
}

TEST(WorkerGenerator, AnUnloadBeforeTheWorkerIsThereCountsNoRestart) {
  WorkerGenerator worker(stub_options());
  for (GenerationId id = 1; id < 9; ++id) {
    unload(worker);
    const auto sink = begin(worker, id, ask("[[stub tokens=100000 rate=100]]"));
    worker.cancel(id);
    unload(worker);  // it was woken, and has no worker yet
    EXPECT_TRUE(sink->wait_end());
    EXPECT_EQ(run(worker, 100 + id, ask("x"))->finish(), Finish::end_token);
    EXPECT_EQ(worker.status().restarts, 0);
  }
}

TEST(WorkerGenerator, CallsMayComeFromCallbacks) {
  WorkerGenerator worker(stub_options());
  struct Chain final : OutputSink {
    Generator& generator;
    std::shared_ptr<RecordingSink> last = std::make_shared<RecordingSink>();
    explicit Chain(Generator& g) : generator(g) {}
    void on_started(const Started&) override {}
    void on_prefill(const PrefillProgress&) override {}
    void on_delta(const Delta&) override { generator.status(); }
    void on_tool_call(const ToolCallMade&) override {}
    void on_ended(const Ended&) override { generator.start(2, ask("second"), last); }
  };
  const auto chain = std::make_shared<Chain>(worker);
  worker.start(1, ask("first"), chain);
  ASSERT_TRUE(chain->last->wait_end());
  EXPECT_EQ(chain->last->finish(), Finish::end_token);
}

TEST(WorkerGenerator, ARefusedModelIsFailedWithItsSentenceAndNotTriedAgain) {
  WorkerGenerator worker(broken_options("refuse"));
  ASSERT_TRUE(wait_status(
      worker, [](const GeneratorStatus& s) { return s.state == GeneratorState::failed; }));
  EXPECT_EQ(worker.status().reason, "this file is from Mars");
  EXPECT_EQ(worker.status().restarts, 0);
  EXPECT_EQ(worker.status().pid, 0);
  const Ended ended = run(worker, 1, ask("x"))->heard().ended.at(0);
  EXPECT_EQ(ended.finish, Finish::failed);
  EXPECT_EQ(ended.error->code, ErrorCode::model_missing);
  EXPECT_EQ(test::plan(worker, ask("x")).error().message, "this file is from Mars");
}

TEST(WorkerGenerator, ARefusalCountsWithoutTheWorkersExit) {
  WorkerGenerator worker(broken_options("refuse_and_stay"));
  EXPECT_EQ(test::plan(worker, ask("x")).error().message, "this file is from Mars");
  EXPECT_EQ(worker.status().state, GeneratorState::failed);
  EXPECT_EQ(worker.status().pid, 0);
}

TEST(WorkerGenerator, ALoadThatHangsSaysForHowLongAndThenFails) {
  WorkerOptions o = broken_options("slow_loading");
  o.load_limit_s = 2;
  WorkerGenerator worker(o);
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) {
    return s.state == GeneratorState::loading && s.reason.find("s so far") != std::string::npos;
  }));
  const std::int64_t pid = worker.status().pid;
  ASSERT_TRUE(wait_status(
      worker, [](const GeneratorStatus& s) { return s.state == GeneratorState::failed; }));
  EXPECT_THAT(worker.status().reason, HasSubstr("within 2 s"));
  EXPECT_FALSE(process_lives(pid));
  EXPECT_EQ(test::plan(worker, ask("x")).error().code, ErrorCode::model_missing);
}

TEST(WorkerGenerator, AMissingProgramIsFailedWithItsPath) {
  WorkerOptions o = stub_options();
  o.engine_program = "/nowhere/ponder-engine";
  WorkerGenerator worker(o);
  ASSERT_TRUE(wait_status(
      worker, [](const GeneratorStatus& s) { return s.state == GeneratorState::failed; }));
  EXPECT_THAT(worker.status().reason, HasSubstr("/nowhere/ponder-engine"));
}

TEST(WorkerGenerator, AProgramThatIsReplacedIsTriedUntilItIsBack) {
  namespace fs = std::filesystem;
  std::string name = testing::TempDir() + "/ponder-engine-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  WorkerOptions o = stub_options();
  const fs::path program = fs::path(name) / "ponder-engine", away = fs::path(name) / "away";
  fs::copy_file(o.engine_program, program);
  o.engine_program = program;
  WorkerGenerator worker(o);
  ASSERT_TRUE(wait_status(worker, is_ready));
  fs::rename(program, away);
  ::kill(static_cast<pid_t>(worker.status().pid), SIGKILL);
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) {
    return s.state == GeneratorState::loading && s.reason.find("cannot start") != std::string::npos;
  }));
  fs::rename(away, program);
  EXPECT_TRUE(wait_status(worker, is_ready));
  fs::remove_all(name);
}

TEST(WorkerGenerator, DeathsWhileLoadingAreBounded) {
  WorkerOptions o = broken_options("crash_loading");
  o.max_load_deaths = 3;
  WorkerGenerator worker(o);
  ASSERT_TRUE(wait_status(
      worker, [](const GeneratorStatus& s) { return s.state == GeneratorState::failed; }));
  EXPECT_EQ(worker.status().restarts, 2);
  EXPECT_THAT(worker.status().reason, HasSubstr("3 times"));
}

TEST(WorkerGenerator, WaitingForALoadingWorkerIsBounded) {
  WorkerOptions o = broken_options("slow_loading");
  o.load_wait_s = 0.2;
  WorkerGenerator worker(o);
  EXPECT_EQ(test::plan(worker, ask("x")).error().code, ErrorCode::loading);
  EXPECT_EQ(run(worker, 1, ask("x"))->heard().ended.at(0).error->code, ErrorCode::loading);
}

TEST(WorkerGenerator, PromptsThatWaitToBeCountedAreBounded) {
  WorkerOptions o = broken_options("slow_loading");
  o.max_call_bytes = 100'000;
  auto worker = std::make_unique<WorkerGenerator>(o);
  std::vector<std::future<ErrorCode>> ends;
  const auto plan = [&](std::size_t bytes) {
    const auto end = std::make_shared<std::promise<ErrorCode>>();
    ends.push_back(end->get_future());
    worker->plan(ask(std::string(bytes, 'x')), [end](Result<PromptPlan> made) {
      end->set_value(made ? ErrorCode::internal : made.error().code);
    });
  };
  plan(200'000);  // alone it may be of any size
  plan(10);
  plan(10);
  EXPECT_EQ(ends[1].get(), ErrorCode::queue_full);
  EXPECT_EQ(ends[2].get(), ErrorCode::queue_full);
  worker.reset();
  EXPECT_NE(ends[0].get(), ErrorCode::queue_full);
}

TEST(WorkerGenerator, APromptIsHeldNoLongerThanItsCallerWaits) {
  WorkerOptions o = broken_options("slow_loading");
  o.load_wait_s = 1e6;
  o.max_call_bytes = 100;
  WorkerGenerator worker(o);
  const auto within = [&](double seconds) {
    return test::await<PromptPlan>([&](std::function<void(Result<PromptPlan>)> done) {
      worker.plan_within(seconds, ask("x"), std::move(done));
    });
  };
  EXPECT_EQ(within(0.01).error().code, ErrorCode::loading);
  EXPECT_EQ(within(0.01).error().code, ErrorCode::loading) << "the first holds no place";
}

TEST(WorkerGenerator, WaitingForALoadingWorkerCanBeCancelled) {
  WorkerGenerator worker(broken_options("slow_loading"));
  auto sink = std::make_shared<RecordingSink>();
  worker.start(2, ask("x"), sink);
  worker.cancel(2);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->finish(), Finish::cancelled);
}

TEST(WorkerGenerator, ACallThatKillsItsWorkerTwiceIsGivenUp) {
  WorkerGenerator worker(broken_options("exit3_on_plan"));
  const auto plan = test::plan(worker, ask("x"));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::engine_error);
  EXPECT_THAT(plan.error().message, HasSubstr("code 3"));
}

class BrokenWorker : public testing::TestWithParam<std::pair<const char*, Finish>> {};

TEST_P(BrokenWorker, EndsItsGenerationAndIsReplaced) {
  WorkerOptions o = broken_options(GetParam().first);
  if (GetParam().second == Finish::stalled) o.stall_s = 0.5;
  WorkerGenerator worker(o);
  const auto sink = run(worker, 1, ask("x"));
  const Heard h = sink->heard();
  ASSERT_EQ(h.ended.size(), 1u);
  EXPECT_EQ(h.ended[0].finish, GetParam().second);
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) { return s.restarts >= 1; }));
}

INSTANTIATE_TEST_SUITE_P(All, BrokenWorker,
                         testing::Values(std::pair{"noise", Finish::worker_died},
                                         std::pair{"bad_json", Finish::worker_died},
                                         std::pair{"unknown_type", Finish::worker_died},
                                         std::pair{"unknown_id", Finish::worker_died},
                                         std::pair{"delta_first", Finish::worker_died},
                                         std::pair{"exit5", Finish::worker_died},
                                         std::pair{"segv", Finish::worker_died},
                                         std::pair{"out_of_memory", Finish::failed},
                                         std::pair{"cut_frame", Finish::stream_lost},
                                         std::pair{"silent_close", Finish::stream_lost},
                                         std::pair{"silent", Finish::stalled}),
                         [](const auto& given) { return std::string(given.param.first); });

TEST(WorkerGenerator, NoiseInsteadOfAGreetingIsADeathWhileLoading) {
  WorkerOptions o = broken_options("noise_at_once");
  o.max_load_deaths = 2;
  WorkerGenerator noisy(o);
  EXPECT_TRUE(wait_status(
      noisy, [](const GeneratorStatus& s) { return s.state == GeneratorState::failed; }));
  WorkerGenerator worker(broken_options("two_hellos"));
  EXPECT_TRUE(wait_status(worker, [](const GeneratorStatus& s) { return s.restarts >= 2; }));
}

TEST(WorkerGenerator, ACancelledGenerationOfADeafWorkerEndsAsCancelled) {
  WorkerOptions o = broken_options("silent");
  o.stall_s = 2;
  WorkerGenerator worker(o);
  const auto sink = begin(worker, 1, ask("x"));
  worker.cancel(1);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->finish(), Finish::cancelled);
}

}  // namespace
}  // namespace ponder
