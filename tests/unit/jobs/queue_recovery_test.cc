// What survives: crashes, clean stops, a disk that refuses, damage.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "jobs/store/job_store.h"
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

class Recovery : public QueueTest {
 protected:
  json::object body(const char* task, const char* kind = "batch") {
    return {{"task", task}, {"kind", kind}};
  }

  // The queue outlives the body of a test, and what it tells then goes here.
  using Ends = std::vector<std::pair<std::string, State>>;
  std::shared_ptr<Ends> hear_ends() {
    const auto ends = std::make_shared<Ends>();
    options.on_end = [ends](const std::string& id, State state) { ends->emplace_back(id, state); };
    return ends;
  }
  std::shared_ptr<std::atomic<int>> hear_losses() {
    const auto lost = std::make_shared<std::atomic<int>>(0);
    options.on_lost = [lost] { ++*lost; };
    return lost;
  }
};

TEST_F(Recovery, EveryKindOfJobComesBackByTheTable) {
  options.max_running_batch = 2;
  open();
  const std::string batch = submit_id(body("b"));
  const std::string waiting = submit_id(body("w"));
  const std::string waiting_ask = submit_id(body("a", "ask"));
  const std::string told_ask = submit_id(body("t", "ask"));
  const std::string queued = submit_id(body("q"));
  auto wait = get_later(told_ask, 1000);
  advance(1500);
  EXPECT_EQ(text_of(*await(wait), "state"), "running");
  for (std::size_t i = 0; i < 4; ++i) {
    const auto run = generator.run(i);
    generator.say(run, Channel::answer, "partial");
  }
  flushed(batch, 7);
  flushed(waiting_ask, 7);
  generator.set_state(GeneratorState::loading);
  reopen_after_crash();
  EXPECT_EQ(state(batch), "queued");
  EXPECT_EQ(state(waiting), "queued");
  EXPECT_EQ(state(told_ask), "queued");
  EXPECT_EQ(state(queued), "queued");
  EXPECT_EQ(state(waiting_ask), "interrupted");
  EXPECT_EQ(result(waiting_ask, Part::partial)->text, "partial");
  EXPECT_EQ(result(batch, Part::partial)->text, "partial");
  EXPECT_EQ(get(batch)->at("attempt"), 1);
  EXPECT_EQ(raw_value(options.database, "SELECT count(*) FROM job WHERE state='running'"), "0");
  // The order is that of submission, also for what ran before.
  EXPECT_EQ(get(told_ask)->at("position"), 1);
  EXPECT_EQ(get(batch)->at("position"), 2);
  EXPECT_EQ(get(queued)->at("position"), 4);
}

TEST_F(Recovery, WhoHearsOfEndsHearsOfThoseThatRecoveryMade) {
  generator.end_on_cancel = false;
  open();
  const std::string ask = submit_id(body("a", "ask"));
  const std::string batch = submit_id(body("b"));
  const auto first = generator.run(0);
  const auto second = generator.run(1);
  auto cancelled = cancel_later(batch);
  generator.wait_cancels(1);
  const auto ends = hear_ends();
  reopen_after_crash([&] {
    generator.end(first, Finish::cancelled);
    generator.end(second, Finish::cancelled);
  });
  nudge();
  EXPECT_EQ(*ends, (Ends{{ask, State::interrupted}, {batch, State::cancelled}}));
  queue.reset();
  ends->clear();
  open();
  nudge();
  EXPECT_TRUE(ends->empty());  // once
}

TEST_F(Recovery, WhoHearsOfEndsHearsOfThoseThatARescueOfTheDatabaseMade) {
  options.on_lost = [] { ADD_FAILURE() << "nobody else has this queue"; };
  const auto ends = hear_ends();
  open();
  const std::string running = submit_id(body("r"));
  const std::string waiting = submit_id(body("w"));
  const auto run = generator.run(0);
  generator.say(run, Channel::answer, "first");
  flushed(running, 5);
  ASSERT_EQ(raw_sql(options.database,
                    "DROP TRIGGER chunk_never_changes; UPDATE chunk SET text = x'42';"
                    "UPDATE request SET body = '{}' WHERE job = 2;"
                    "UPDATE job SET label = 'x' WHERE seq = 2"),
            "");
  generator.say(run, Channel::answer, " second");
  advance(options.flush_ms);
  EXPECT_EQ(state(waiting), "failed");
  advance(1000);
  EXPECT_EQ(*ends, (Ends{{running, State::failed}, {waiting, State::failed}}));
}

TEST_F(Recovery, AfterARunningRowThatWasDamagedTheNextJobStarts) {
  for (const std::string damage : {"UPDATE job SET label = 'x' WHERE seq = 1",
                                   "DROP TRIGGER job_live_stays; DELETE FROM job WHERE seq = 1"}) {
    SCOPED_TRACE(damage);
    const TempDir own;
    options.database = own / "ponder.db";
    options.on_lost = [] { ADD_FAILURE() << "nobody else has this queue"; };
    const std::size_t runs = generator.runs();
    open();
    const std::string damaged = submit_id(body("d"));
    submit_id(body("n"));
    const auto run = generator.run(runs);
    generator.say(run, Channel::answer, "first");
    flushed(damaged, 5);
    ASSERT_EQ(raw_sql(options.database,
                      "DROP TRIGGER chunk_never_changes; UPDATE chunk SET text = x'42';" + damage),
              "");
    generator.complete(run);
    generator.run(runs + 1);  // aborts where it does not come
    queue.reset();
  }
}

TEST_F(Recovery, AProcessThatVanishesLosesNoAcceptedJob) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    FakeGenerator engine;
    HandClock time;
    auto q = JobQueue::open(options, engine, time);
    for (int i = 0; i < 20 && q; ++i) {
      const auto done = std::make_shared<std::promise<void>>();
      (*q)->submit(*parse_job_spec({{"task", "t" + std::to_string(i)}}),
                   [done, report = pipe_ends[1]](Result<Submitted> r) {
                     const std::string id =
                         r ? text_of(r->envelope, "job_id") : std::string(26, '-');
                     if (::write(report, id.data(), 26) != 26) ::_exit(1);
                     done->set_value();
                   });
      done->get_future().wait();
    }
    ::_exit(0);  // no destructor, no checkpoint
  }
  ::close(pipe_ends[1]);
  std::vector<std::string> ids;
  char id[26];
  while (::read(pipe_ends[0], id, 26) == 26)
    ids.emplace_back(id, 26);
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(ids.size(), 20u);
  open();
  for (const std::string& known : ids) {
    auto e = get(known);
    EXPECT_TRUE(e) << known;
  }
}

class TurnEnd : public OutputSink {
 public:
  void on_started(const Started&) override {}
  void on_prefill(const PrefillProgress&) override {}
  void on_delta(const Delta&) override {}
  void on_tool_call(const ToolCallMade&) override {}
  void on_ended(const Ended& e) override { ended.set_value(e); }
  std::promise<Ended> ended;
};

TEST_F(Recovery, ATurnThatComesToAStoppedQueueIsToldWhatToDo) {
  open();
  queue->stop();
  const auto turn = std::make_shared<TurnEnd>();
  auto told = turn->ended.get_future();
  queue->start_turn({}, turn);
  const Ended end = await(told);
  EXPECT_EQ(end.finish, Finish::failed);
  EXPECT_EQ(end.error->code, ErrorCode::loading);
  EXPECT_NE(end.error->hint.find("again"), std::string::npos);
}

TEST_F(Recovery, ACleanStopRequeuesBatchAndInterruptsAsks) {
  open();
  const std::string batch = submit_id(body("b"));
  const std::string ask = submit_id(body("a", "ask"));
  const std::string queued = submit_id(body("q"));
  for (std::size_t i = 0; i < 2; ++i)
    generator.say(generator.run(i), Channel::answer, "partial");
  auto wait = get_later(batch, 60'000);
  nudge();
  queue->stop();
  await(wait);
  queue->stop();  // again: nothing
  queue.reset();
  EXPECT_EQ(raw_value(options.database,
                      "SELECT group_concat(state) FROM (SELECT state FROM job ORDER BY seq)"),
            "queued,interrupted,queued");
  generator.set_state(GeneratorState::loading);
  open();
  EXPECT_EQ(result(batch, Part::partial)->text, "partial");
  EXPECT_EQ(result(ask, Part::partial)->text, "partial");
  EXPECT_EQ(get(batch)->at("attempt"), 1);
  generator.set_state(GeneratorState::ready);
  advance(200);
  const auto run = generator.run(2);
  EXPECT_FALSE(run.request.resume.empty());
  generator.say(run, Channel::answer, " and whole");
  generator.end(run, Finish::end_token);
  EXPECT_EQ(text_of(ended(batch), "answer"), "partial and whole");
  EXPECT_EQ(ended(batch).at("attempt"), 1);
}

TEST_F(Recovery, StopEndsAlsoWhenTheGeneratorDoesNot) {
  generator.end_on_cancel = false;
  options.end_grace_ms = 50;
  open();
  const std::string batch = submit_id(body("b"));
  generator.run(0);
  nudge();
  std::atomic<bool> stopped{false};
  std::thread ticking([&] {  // the timer of the grace is set at a time that only the queue knows
    while (!stopped) {
      clock.advance(20);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  queue->stop();
  stopped = true;
  ticking.join();
  queue.reset();
  EXPECT_EQ(raw_value(options.database, "SELECT state FROM job"), "queued");
}

TEST_F(Recovery, CallsAfterAStopAreRefusedNotLost) {
  open();
  queue->stop();
  EXPECT_FALSE(submit(body("t")));
  EXPECT_FALSE(get("x"));
}

TEST_F(Recovery, ACancelThatWasWishedHoldsThroughACrash) {
  generator.end_on_cancel = false;
  open();
  const std::string id = submit_id(body("b"));
  const auto run = generator.run(0);
  auto cancelled = cancel_later(id);
  generator.wait_cancels(1);
  reopen_after_crash([&] { generator.end(run, Finish::cancelled); });
  EXPECT_EQ(state(id), "cancelled");
  nudge();
  EXPECT_EQ(generator.runs(), 1u);
}

TEST_F(Recovery, AnAttemptThatWasTakenAwayWritesNothingAndTheDaemonIsTold) {
  // Another daemon on the same database, as if the lock had not held: it moves both jobs on and
  // runs the first.
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t another = ::fork();
  ASSERT_GE(another, 0);
  if (another == 0) {
    char id[26];
    if (::read(go[0], id, 26) != 26) ::_exit(2);
    auto store = JobStore::open(options.database);
    StateChange change;
    const bool done = store && (*store)->recover("another", 0)->moved == 2 &&
                      *(*store)->claim(std::string_view(id, 26), "another", 0, change);
    ::_exit(done ? 0 : 1);
  }
  const auto lost = hear_losses();
  options.max_running_batch = 2;
  open();
  const std::string taken = submit_id(body("t"));
  const std::string ends_late = submit_id(body("e"));
  const auto first = generator.run(0);
  const auto second = generator.run(1);
  generator.say(first, Channel::answer, "ours");
  flushed(taken, 4);
  ASSERT_EQ(::write(go[1], taken.data(), 26), 26);
  int status = 0;
  ASSERT_EQ(::waitpid(another, &status, 0), another);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(go[0]);
  ::close(go[1]);

  generator.say(first, Channel::answer, " and late");
  advance(options.flush_ms);
  EXPECT_EQ(*lost, 1);
  generator.complete(second);
  advance(0);
  EXPECT_EQ(*lost, 2);
  const auto row = [&](const std::string& id) {
    return raw_value(options.database,
                     "SELECT state || ' ' || coalesce(instance, '') || ' ' || claims FROM job "
                     "WHERE id = '" +
                         id + "'");
  };
  EXPECT_EQ(row(taken), "running another 2");
  EXPECT_EQ(row(ends_late), "queued  1");
  EXPECT_EQ(raw_value(options.database, "SELECT group_concat(CAST(text AS TEXT)) FROM chunk"),
            "ours");
}

TEST_F(Recovery, WhereTheLockIsGoneNothingIsAcceptedOrClaimed) {
  const auto owner = std::make_shared<std::atomic<bool>>(true);
  options.is_owner = [owner] { return owner->load(); };
  const auto lost = hear_losses();
  generator.set_state(GeneratorState::loading);
  open();
  const std::string id = submit_id(body("b"));
  *owner = false;
  const auto refused = submit(body("c"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::loading);
  EXPECT_EQ(*lost, 1);
  generator.set_state(GeneratorState::ready);
  advance(2000);
  EXPECT_EQ(state(id), "queued");
  EXPECT_EQ(generator.runs(), 0u);
  EXPECT_GE(*lost, 2);
}

TEST_F(Recovery, ADamagedTextIsAnErrorAndNeverWrongText) {
  open();
  const std::string id = submit_id(body("b"));
  generator.complete(generator.run(0), "the right answer");
  ended(id);
  ASSERT_EQ(raw_sql(options.database,
                    "DROP TRIGGER chunk_never_changes; UPDATE chunk SET text = "
                    "CAST('the wrong answer' AS BLOB) WHERE channel = 1"),
            "");
  const auto read = result(id);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::storage);
  const json::object e = *get(id);  // its status can still be asked
  EXPECT_EQ(text_of(e, "state"), "completed");
  EXPECT_TRUE(e.at("answer").is_null());
  EXPECT_EQ(e.at("truncated"), true);
  EXPECT_NE(text_of(e, "note").find("damaged"), std::string::npos);
}

/// No file of this process can grow beyond `bytes`: the disk is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit now = old_;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST_F(Recovery, AFullDiskRefusesKeepsAndRecoversWithoutARestart) {
  open();
  const std::string id = submit_id(body("b"));
  const auto run = generator.run(0);
  generator.begin(run);
  generator.say(run, Channel::answer, "before");
  flushed(id, 6);
  {
    const FullDisk full(1024);  // less than is already there
    const auto refused = submit(body("c"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::storage);
    EXPECT_FALSE(queue->status().store_ok);
    EXPECT_NE(queue->status().store_reason, "");
    generator.say(run, Channel::answer, " and after");
    advance(1000);
    generator.end(run, Finish::end_token);
    advance(3000);
    // It has ended, but nobody is told before it is on disk.
    EXPECT_EQ(state(id), "running");
    EXPECT_EQ(result(id, Part::partial)->text, "before and after");
  }
  advance(3000);
  EXPECT_EQ(text_of(ended(id), "answer"), "before and after");
  EXPECT_TRUE(queue->status().store_ok);
  EXPECT_TRUE(submit(body("c")));
  EXPECT_EQ(list({})->jobs.size(), 2u);
}

TEST_F(Recovery, ACancelWhoseEndCannotBeWrittenIsAnsweredWithStorage) {
  open();
  const std::string id = submit_id(body("b"));
  generator.begin(generator.run(0));
  {
    const FullDisk full(1024);
    const auto refused = cancel(id);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::storage);
    EXPECT_EQ(state(id), "running");
  }
  advance(3000);
  EXPECT_EQ(text_of(ended(id), "state"), "cancelled");
}

TEST_F(Recovery, StreamedTextIsSyncedWithinASecondAlsoIfNoMoreComes) {
  open();
  const std::string id = submit_id(body("b"));
  generator.begin(generator.run(0));
  generator.say(generator.run(0), Channel::answer, "first");
  flushed(id, 5);  // synced: the first of its attempt
  generator.say(generator.run(0), Channel::answer, " second");
  flushed(id, 12);
  EXPECT_EQ(raw_value(options.database, "SELECT count(*) FROM chunk"), "2");
  const std::string before = raw_value(options.database, "SELECT run_ms FROM job");
  advance(500);
  // The sync is one more write of the row, and the last one.
  const std::string after = raw_value(options.database, "SELECT run_ms FROM job");
  EXPECT_NE(after, before);
  advance(2000);
  EXPECT_EQ(raw_value(options.database, "SELECT run_ms FROM job"), after);
}

TEST_F(Recovery, AFullDiskAtTheClaimLeavesTheJobQueued) {
  generator.set_state(GeneratorState::loading);
  open();
  const std::string id = submit_id(body("b"));
  {
    const FullDisk full(1024);
    generator.set_state(GeneratorState::ready);
    advance(2000);
    EXPECT_EQ(state(id), "queued");
    EXPECT_EQ(generator.runs(), 0u);
  }
  advance(3000);
  generator.complete(generator.run(0));
  EXPECT_EQ(text_of(ended(id), "state"), "completed");
}

}  // namespace
}  // namespace ponder::jobs
