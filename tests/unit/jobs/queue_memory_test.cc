// Memory that all running generations share: what does not fit beside them waits and never fails.
#include <thread>

#include "tests/unit/generator/recording_sink.h"
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

json::object batch(const char* task) {
  return {{"task", task}, {"workspace", "/w"}};
}
json::object ask(const char* task) {
  return {{"kind", "ask"}, {"task", task}, {"workspace", "/w"}};
}

class QueueMemory : public QueueTest {
 protected:
  static constexpr std::uint64_t kBudget = 1000, kJob = 611;  // of the fake generator

  void SetUp() override {
    options.max_running_batch = 2;
    generator.set_memory(kBudget, kBudget);
    open();
  }
  void one_runs() { generator.set_memory(kBudget, kBudget - kJob); }
  void none_runs() { generator.set_memory(kBudget, kBudget); }
  std::string waiting_for(const std::string& id) { return text_of(*get(id), "waiting_for"); }
  void until(const std::string& id, const std::string& wanted) {
    while (state(id) != wanted)
      std::this_thread::yield();
  }
  std::string claims(const std::string& id) {
    return raw_value(options.database, "SELECT claims FROM job WHERE id = '" + id + "'");
  }
  static Error refusal(std::int64_t needed) {
    Error error{ErrorCode::out_of_memory, "no room"};
    error.details = {{"needed", needed}, {"free", 1}};
    return error;
  }
  CallId turn(const std::shared_ptr<test::RecordingSink>& sink) {
    return queue->start_turn(test::ask("q"), sink);
  }
};

TEST_F(QueueMemory, WhatDoesNotFitWaitsQueuedAndRunsWhenThereIsRoom) {
  const std::string first = submit_id(batch("a"));
  generator.begin(generator.run(0));
  one_runs();
  const std::string second = submit_id(batch("b"));
  advance(10'000);
  EXPECT_EQ(state(second), "queued");
  EXPECT_EQ(waiting_for(second), "memory");
  EXPECT_NE(text_of(*get(second), "note").find("MiB"), std::string::npos);
  EXPECT_EQ(generator.runs(), 1u);
  generator.complete(generator.run(0));
  EXPECT_EQ(text_of(ended(first), "state"), "completed");
  none_runs();
  advance(100);
  generator.complete(generator.run(1));
  const json::object e = ended(second);
  EXPECT_EQ(text_of(e, "state"), "completed");
  EXPECT_EQ(e.at("attempt"), 1);
  EXPECT_EQ(claims(second), "1");  // it was queued all the time
}

TEST_F(QueueMemory, TwoThatAreStartedAtOnceAreCountedBeforeTheEngineDoes) {
  generator.set_state(GeneratorState::loading);
  const std::string first = submit_id(batch("a"));
  const std::string second = submit_id(batch("b"));
  generator.set_state(GeneratorState::ready);
  advance(200);
  generator.run(0);
  advance(200);
  EXPECT_EQ(state(first), "running");
  EXPECT_EQ(waiting_for(second), "memory");
  EXPECT_EQ(generator.runs(), 1u);
}

TEST_F(QueueMemory, AloneAJobStartsHoweverLargeItIs) {
  generator.set_memory(10, 10);
  const std::string id = submit_id(batch("a"));
  generator.complete(generator.run(0));
  EXPECT_EQ(text_of(ended(id), "state"), "completed");
}

TEST_F(QueueMemory, AJobThatTheEngineRefusesIsQueuedAgainWithoutAnAttempt) {
  const std::string first = submit_id(batch("a"));
  generator.begin(generator.run(0));
  generator.set_memory(kBudget, kBudget);  // as the queue still believes
  const std::string second = submit_id(batch("b"));
  generator.end(generator.run(1), Finish::no_memory, refusal(700));
  until(second, "queued");
  generator.set_memory(kBudget, 650);
  advance(1000);
  EXPECT_EQ(waiting_for(second), "memory");
  EXPECT_EQ(generator.runs(), 2u);
  generator.set_memory(kBudget, 700);
  advance(100);
  generator.complete(generator.run(2));
  EXPECT_EQ(ended(second).at("attempt"), 1);
}

TEST_F(QueueMemory, AJobWithoutMemoryInItsMiddleGoesOnAlone) {
  const std::string first = submit_id(batch("a"));
  generator.begin(generator.run(0));
  const std::string second = submit_id(batch("b"));
  const auto run = generator.run(1);
  generator.begin(run);
  generator.say(run, Channel::answer, "half");
  generator.end(run, Finish::no_memory, Error{ErrorCode::out_of_memory, "none at all"});
  until(second, "queued");
  advance(60'000);
  EXPECT_EQ(waiting_for(second), "memory");
  EXPECT_EQ(generator.runs(), 2u);
  generator.complete(generator.run(0));
  ended(first);
  advance(100);
  const auto again = generator.run(2);
  EXPECT_EQ(again.request.resume, std::vector<std::int32_t>{4});
  generator.begin(again);
  generator.say(again, Channel::answer, " and half");
  generator.end(again, Finish::end_token);
  EXPECT_EQ(text_of(ended(second), "answer"), "half and half");
}

TEST_F(QueueMemory, ATurnThatIsRefusedWaitsAndItsReaderHearsNothing) {
  submit_id(batch("a"));
  generator.begin(generator.run(0));
  advance(70'000);
  const auto sink = std::make_shared<test::RecordingSink>();
  generator.end_on_cancel = false;  // the batch job takes its time to make room
  turn(sink);
  generator.end(generator.run(1), Finish::no_memory, refusal(700));
  one_runs();
  advance(100);
  EXPECT_EQ(generator.runs(), 2u);
  EXPECT_TRUE(sink->heard().ended.empty());
  EXPECT_EQ(queue->status().ask, 1);
  generator.wait_cancels(1);
  generator.end_on_cancel = true;
  generator.end(generator.run(0), Finish::cancelled);
  none_runs();
  nudge();
  advance(100);
  const auto again = generator.run(2);
  EXPECT_EQ(again.request.chat.messages.at(0).content, "q");
  generator.complete(again);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->finish(), Finish::end_token);
  EXPECT_EQ(sink->heard().started.size(), 1u);
}

TEST_F(QueueMemory, ATurnThatIsRefusedCanBeCancelled) {
  options.max_running_interactive = 2;
  const auto sink = std::make_shared<test::RecordingSink>();
  const auto other = std::make_shared<test::RecordingSink>();
  turn(other);
  generator.begin(generator.run(0));
  one_runs();
  const CallId call = turn(sink);
  generator.end(generator.run(1), Finish::no_memory, refusal(700));
  advance(100);
  EXPECT_EQ(queue->status().ask, 1);
  queue->cancel_turn(call);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->finish(), Finish::cancelled);
  nudge();
  EXPECT_EQ(queue->status().ask, 0);
}

TEST_F(QueueMemory, ATurnWithoutMemoryInItsMiddleFails) {
  const auto sink = std::make_shared<test::RecordingSink>();
  turn(sink);
  generator.begin(generator.run(0));
  generator.end(generator.run(0), Finish::no_memory, Error{ErrorCode::out_of_memory, "none"});
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->finish(), Finish::failed);
  EXPECT_EQ(sink->heard().ended.at(0).error->code, ErrorCode::out_of_memory);
}

TEST_F(QueueMemory, ABatchJobMakesRoomForAnAskAndGoesOnAfterwards) {
  const std::string job = submit_id(batch("long"));
  const auto run = generator.run(0);
  generator.begin(run);
  generator.say(run, Channel::answer, "one");
  one_runs();
  advance(400'000);  // it is old enough to go before asks, had it waited
  const std::string question = submit_id(ask("short"));
  generator.wait_cancels(1);
  until(job, "queued");
  none_runs();
  advance(100);
  const auto answer = generator.run(1);
  EXPECT_EQ(answer.request.chat.messages.back().content, "short");
  generator.begin(answer);
  one_runs();
  advance(1000);
  EXPECT_EQ(waiting_for(job), "memory");
  generator.complete(answer);
  ended(question);
  none_runs();
  advance(100);
  const auto again = generator.run(2);
  EXPECT_EQ(again.request.resume, std::vector<std::int32_t>{3});
  generator.begin(again);
  one_runs();
  // So soon it makes room for nobody: asks that come one after the other leave it its share.
  const std::string next = submit_id(ask("another"));
  advance(50'000);
  EXPECT_EQ(state(next), "queued");
  EXPECT_EQ(waiting_for(next), "memory");
  advance(20'000);
  generator.wait_cancels(2);
  until(job, "queued");
  none_runs();
  advance(100);
  generator.complete(generator.run(3));
  ended(next);
  advance(100);
  const auto last = generator.run(4);
  generator.begin(last);
  generator.say(last, Channel::answer, " two");
  generator.end(last, Finish::end_token);
  const json::object e = ended(job);
  EXPECT_EQ(text_of(e, "answer"), "one two");
  EXPECT_EQ(e.at("attempt"), 1);
}

TEST_F(QueueMemory, ABatchJobStaysWhereItsMemoryWouldNotBeEnough) {
  const std::string job = submit_id(batch("long"));
  generator.begin(generator.run(0));
  const auto sink = std::make_shared<test::RecordingSink>();
  generator.set_memory(2000, 2000 - kJob);
  turn(sink);
  generator.begin(generator.run(1));
  generator.set_memory(2000, 100);
  const auto large = std::make_shared<test::RecordingSink>();
  turn(large);
  generator.end(generator.run(2), Finish::no_memory, refusal(1500));
  advance(1000);
  EXPECT_EQ(state(job), "running");
  generator.complete(generator.run(1));
  sink->wait_end();
  generator.set_memory(2000, 2000 - kJob);
  advance(100);
  generator.wait_cancels(1);  // now it is
  EXPECT_EQ(generator.run(3).request.chat.messages.at(0).content, "q");
}

}  // namespace
}  // namespace ponder::jobs
