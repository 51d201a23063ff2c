// What a look at a job does beside answering: it waits for what its caller has not seen, and an ask
// whose id its caller hands on is kept.
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

class Looks : public QueueTest {
 protected:
  std::future<Result<json::object>> look(const std::string& id, Look look) {
    auto promise = std::make_shared<std::promise<Result<json::object>>>();
    queue->get(id, std::move(look), [promise](Result<json::object> r) { promise->set_value(r); });
    return promise->get_future();
  }
  json::object told(const std::string& id) {
    Look l;
    l.told = true;
    auto future = look(id, l);
    return *await(future);
  }
};

TEST_F(Looks, AnAskWhoseIdWasToldOutlivesTheDaemonRunningOrQueued) {
  options.max_running_interactive = 1;
  open();
  const std::string running = submit_id({{"task", "a"}, {"kind", "ask"}});
  const std::string queued = submit_id({{"task", "b"}, {"kind", "ask"}});
  generator.run(0);
  EXPECT_EQ(text_of(told(running), "state"), "running");
  EXPECT_EQ(text_of(told(queued), "state"), "queued");
  generator.set_state(GeneratorState::loading);
  reopen_after_crash();
  EXPECT_EQ(state(running), "queued");
  EXPECT_EQ(state(queued), "queued");
}

TEST_F(Looks, AnAskWhoseCallerStillWaitsIsNotTakenForTold) {
  open();
  const std::string id = submit_id({{"task", "a"}, {"kind", "ask"}});
  const auto run = generator.run(0);
  auto wait = get_later(id, 45'000);
  generator.say(run, Channel::reasoning, "hm");  // another phase ends the wait before its bound
  EXPECT_EQ(text_of(*await(wait), "phase"), "thinking");
  generator.set_state(GeneratorState::loading);
  reopen_after_crash();
  EXPECT_EQ(state(id), "interrupted");
}

TEST_F(Looks, WhatHasMovedSinceItWasSeenIsAnsweredAtOnce) {
  open();
  const std::string id = submit_id({{"task", "a"}});
  const auto run = generator.run(0);
  Look seen(1000);
  seen.seen = {State::queued, ""};
  auto started = look(id, seen);
  const json::object now = *await(started);
  EXPECT_EQ(text_of(now, "state"), "running");
  seen.seen = {State::running, text_of(now, "phase")};
  auto same = look(id, seen);
  generator.say(run, Channel::answer, "x");
  EXPECT_EQ(text_of(*await(same), "phase"), "answering");
  auto missed = look(id, seen);  // the phase changed before this one came
  EXPECT_EQ(text_of(*await(missed), "phase"), "answering");
}

}  // namespace
}  // namespace ponder::jobs
