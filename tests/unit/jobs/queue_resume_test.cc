// Going on from stored tokens: after crashes and stops, and in a new job.
#include <numeric>
#include <thread>

#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

/// A model whose tokens are numbers and whose whole output is known: token i is i + 1, its text the
/// entry i. A run that was given tokens goes on after them.
const std::vector<std::pair<Channel, std::string>> kOutput{
    {Channel::reasoning, "one "}, {Channel::reasoning, "two "}, {Channel::reasoning, "dré"},
    {Channel::answer, "vier "},   {Channel::answer, "漢 "},     {Channel::answer, "six"}};

class Resume : public QueueTest {
 protected:
  Resume() {
    for (const auto& [channel, text] : kOutput)
      (channel == Channel::reasoning ? reasoning : answer) += text;
  }
  static std::vector<std::int32_t> first(std::size_t n) {
    std::vector<std::int32_t> ids(n);
    std::iota(ids.begin(), ids.end(), 1);
    return ids;
  }
  static void say_token(const FakeGenerator::Run& run, std::size_t i, bool forced = false) {
    run.sink->on_delta(
        {kOutput[i].first, kOutput[i].second, {static_cast<std::int32_t>(i + 1)}, {}, forced});
  }
  void say(const FakeGenerator::Run& run, std::size_t from, std::size_t to, bool forced = false) {
    for (std::size_t i = from; i < to; ++i)
      say_token(run, i, forced);
  }
  static std::int64_t bytes(std::size_t n) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      sum += static_cast<std::int64_t>(kOutput[i].second.size());
    return sum;
  }
  void expect_whole(const std::string& id) {
    const json::object e = ended(id);
    EXPECT_EQ(text_of(e, "state"), "completed");
    EXPECT_EQ(text_of(e, "answer"), answer);
    EXPECT_EQ(result(id, Part::reasoning)->text, reasoning);
    EXPECT_EQ(e.at("tokens").at("reasoning"), 3);
    EXPECT_EQ(e.at("tokens").at("answer"), 3);
  }
  void queued_again(const std::string& id) {
    while (state(id) != "queued")
      std::this_thread::yield();
    advance(100);
  }
  /// A job cut after `n` tokens as incomplete.
  std::string cut_job(std::size_t n, Finish finish, json::object body = {{"task", "t"}}) {
    const std::string id = submit_id(body);
    const auto run = generator.run(generator.runs() == 0 ? 0 : runs_seen);
    runs_seen = generator.runs();
    generator.begin(run);
    say(run, 0, n);
    generator.end(run, finish);
    ended(id);
    return id;
  }

  std::string reasoning, answer;
  std::size_t runs_seen = 0;
};

TEST_F(Resume, AfterACrashAtAnyTokenTheTextIsThatOfAnUncutRun) {
  for (std::size_t at = 1; at < kOutput.size(); ++at) {
    queue.reset();
    std::filesystem::remove_all(dir.path());
    std::filesystem::create_directory(dir.path());
    const std::size_t before = generator.runs();
    open();
    const std::string id = submit_id({{"task", "t"}});
    const auto run = generator.run(before);
    generator.begin(run);
    say(run, 0, at);
    flushed(id, bytes(at));
    reopen_after_crash();
    const auto again = generator.run(before + 1);
    EXPECT_EQ(again.request.resume, first(at));
    EXPECT_EQ(again.request.sampling.seed, run.request.sampling.seed);
    EXPECT_EQ(get(id)->at("attempt"), 1);
    generator.begin(again);
    say(again, at, kOutput.size());
    generator.end(again, Finish::end_token);
    expect_whole(id);
  }
}

TEST_F(Resume, AWorkersDeathCountsAndOneFromOutsideDoesNot) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  auto run = generator.run(0);
  say(run, 0, 2);
  generator.end(run, Finish::worker_died);
  queued_again(id);
  run = generator.run(1);
  EXPECT_EQ(run.request.resume, first(2));
  EXPECT_EQ(get(id)->at("attempt"), 2);
  say(run, 2, 4);
  generator.end(run, Finish::worker_killed);
  queued_again(id);
  run = generator.run(2);
  EXPECT_EQ(run.request.resume, first(4));
  EXPECT_EQ(get(id)->at("attempt"), 2);
  say(run, 4, 6);
  generator.end(run, Finish::end_token);
  expect_whole(id);
}

TEST_F(Resume, ACleanStopLosesNoToken) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  say(run, 0, 3);
  nudge();
  queue->stop();
  queue.reset();
  open();
  const auto again = generator.run(1);
  EXPECT_EQ(again.request.resume, first(3));
  say(again, 3, 6);
  generator.end(again, Finish::end_token);
  expect_whole(id);
}

TEST_F(Resume, ADamagedChunkCostsOnlyWhatFollowsIt) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  for (std::size_t i = 0; i < 4; ++i) {
    say_token(run, i);
    flushed(id, bytes(i + 1));
  }
  ASSERT_EQ(raw_sql(options.database,
                    "DROP TRIGGER chunk_never_changes; UPDATE chunk SET text = x'42' "
                    "WHERE seq = 2"),
            "");
  reopen_after_crash();
  const auto again = generator.run(1);
  EXPECT_EQ(again.request.resume, first(2));
  say(again, 2, 6);
  generator.end(again, Finish::end_token);
  expect_whole(id);
}

TEST_F(Resume, DamageOfAWaitingJobIsFoundWhenItStarts) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  for (std::size_t i = 0; i < 4; ++i) {
    say_token(run, i);
    flushed(id, bytes(i + 1));
  }
  queue->stop();
  queue.reset();
  ASSERT_EQ(raw_sql(options.database,
                    "DROP TRIGGER chunk_never_changes; UPDATE chunk SET tokens = x'09000000' "
                    "WHERE seq = 1"),
            "");
  open();
  const auto again = generator.run(1);
  EXPECT_EQ(again.request.resume, first(1));
  say(again, 1, 6);
  generator.end(again, Finish::end_token);
  expect_whole(id);
}

TEST_F(Resume, BeginningAgainIsASetting) {
  options.resume_after_crash = false;
  open();
  const std::string id = submit_id({{"task", "t"}});
  say(generator.run(0), 0, 3);
  flushed(id, bytes(3));
  reopen_after_crash();
  const auto again = generator.run(1);
  EXPECT_TRUE(again.request.resume.empty());
  say(again, 0, 6);
  generator.end(again, Finish::end_token);
  expect_whole(id);
}

TEST_F(Resume, TokensOfAnotherModelAreNotGoneOnFrom) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  say(generator.run(0), 0, 2);
  flushed(id, bytes(2));
  generator.set_model("other");
  reopen_after_crash();
  const auto again = generator.run(1);
  EXPECT_TRUE(again.request.resume.empty());
  generator.say(again, Channel::answer, "something else");
  generator.end(again, Finish::end_token);
  EXPECT_EQ(text_of(ended(id), "answer"), "something else");
}

TEST_F(Resume, ACutJobGoesOnInANewOne) {
  open();
  const std::string cut =
      cut_job(2, Finish::reasoning_exhausted, {{"task", "t"}, {"max_reasoning_tokens", 2}});
  const auto made = submit({{"continue_from", cut}, {"mode", "resume"}});
  ASSERT_TRUE(made) << made.error().message;
  const std::string id = text_of(made->envelope, "job_id");
  EXPECT_EQ(text_of(made->envelope, "parent_id"), cut);
  EXPECT_EQ(text_of(list({})->jobs.at(0), "preview"), "t");
  const auto run = generator.run(1);
  EXPECT_EQ(run.request.resume, first(2));
  EXPECT_EQ(run.request.sampling.seed, generator.run(0).request.sampling.seed);
  EXPECT_FALSE(run.request.budgets.max_reasoning_tokens);
  say(run, 2, 6);
  generator.end(run, Finish::end_token);
  expect_whole(id);
  EXPECT_EQ(text_of(*get(cut), "state"), "incomplete");  // what has ended never changes
  EXPECT_EQ(result(cut, Part::reasoning)->text, "one two ");
}

TEST_F(Resume, WhatWasHeldBackToTheEndIsNotThereTwice) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  auto run = generator.run(0);
  say(run, 0, 1);
  run.sink->on_delta({Channel::reasoning, "tw", {}});  // of the next word, at the very end
  flushed(id, bytes(1) + 2);
  reopen_after_crash();  // between the text and its end
  run = generator.run(1);
  EXPECT_EQ(run.request.resume, first(1));
  run.sink->on_delta({Channel::reasoning, "tw", {}});
  generator.end(run, Finish::reasoning_exhausted);
  ended(id);
  EXPECT_EQ(result(id, Part::reasoning)->text, "one tw");
  const std::string child = submit_id({{"continue_from", id}, {"mode", "resume"}});
  run = generator.run(2);
  EXPECT_EQ(run.request.resume, first(1));
  say(run, 1, 6);
  generator.end(run, Finish::end_token);
  expect_whole(child);
}

TEST_F(Resume, ANewJobThatGoesOnSurvivesACrashBeforeAndAfterItsFirstToken) {
  options.resume_after_crash = false;  // also then its parent's tokens are where it begins
  open();
  const std::string cut = cut_job(2, Finish::output_limit);
  const std::string id = submit_id({{"continue_from", cut}, {"mode", "resume"}});
  generator.run(1);
  reopen_after_crash();
  auto run = generator.run(2);
  EXPECT_EQ(run.request.resume, first(2));
  say(run, 2, 4);
  flushed(id, bytes(4));
  reopen_after_crash();
  run = generator.run(3);
  EXPECT_EQ(run.request.resume, first(2));
  say(run, 2, 6);
  generator.end(run, Finish::end_token);
  expect_whole(id);
}

TEST_F(Resume, AnAnswerNowEndsTheRunningJobAndTakesItsTokens) {
  open();
  const std::string parent = submit_id({{"task", "t"}});
  const auto thinking = generator.run(0);
  generator.begin(thinking);
  say(thinking, 0, 2);
  nudge();
  const auto made = submit({{"continue_from", parent}, {"mode", "answer_now"}});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(state(parent), "cancelled");
  EXPECT_EQ(result(parent, Part::reasoning)->text, "one two ");
  const std::string id = text_of(made->envelope, "job_id");
  const auto run = generator.run(1);
  EXPECT_EQ(run.request.resume, first(2));
  generator.wait_answers(1);
  say(run, 3, 6, true);
  generator.end(run, Finish::end_token);
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "answer"), answer);
  EXPECT_EQ(e.at("forced_answer"), true);
  EXPECT_EQ(result(id, Part::reasoning)->text, "one two ");
  // The same wish again finds no job to end any more, and the cancelled one answers it.
  EXPECT_TRUE(submit({{"continue_from", parent}, {"mode", "answer_now"}}));
}

TEST_F(Resume, AnAnswerNowIsStillAskedForAfterACrash) {
  open();
  const std::string cut = cut_job(2, Finish::stalled);
  const std::string id = submit_id({{"continue_from", cut}, {"mode", "answer_now"}});
  generator.wait_answers(1);
  generator.run(1);
  reopen_after_crash();
  const auto run = generator.run(2);
  generator.wait_answers(2);
  say(run, 3, 6, true);
  generator.end(run, Finish::end_token);
  EXPECT_EQ(ended(id).at("forced_answer"), true);
}

/// The run that goes on sees tokens only: for it the thinking may have closed itself.
TEST_F(Resume, AForcedAnswerIsRememberedThroughACrashAndInAJobThatGoesOnFromIt) {
  open();
  const std::string id = submit_id({{"task", "t"}, {"on_limit", "answer"}, {"deadline_s", 10}});
  auto run = generator.run(0);
  generator.begin(run);
  say(run, 0, 3);
  flushed(id, bytes(3));
  EXPECT_EQ(get(id)->at("forced_answer"), false);
  say(run, 3, 4, true);
  flushed(id, bytes(4));
  EXPECT_EQ(get(id)->at("forced_answer"), true);
  reopen_after_crash();
  run = generator.run(1);
  EXPECT_EQ(run.request.resume, first(4));
  say(run, 4, 5);
  generator.end(run, Finish::output_limit);
  EXPECT_EQ(ended(id).at("forced_answer"), true);
  const std::string child = submit_id({{"continue_from", id}, {"mode", "resume"}});
  run = generator.run(2);
  EXPECT_EQ(run.request.resume, first(5));
  say(run, 5, 6);
  generator.end(run, Finish::end_token);
  expect_whole(child);
  EXPECT_EQ(ended(child).at("forced_answer"), true);
}

TEST_F(Resume, AWaitingJobThatIsToAnswerNowIsCancelledForIt) {
  generator.set_state(GeneratorState::loading);
  open();
  const std::string parent = submit_id({{"task", "t"}});
  const auto made = submit({{"continue_from", parent}, {"mode", "answer_now"}});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(state(parent), "cancelled");
  EXPECT_EQ(text_of(made->envelope, "state"), "queued");
}

TEST_F(Resume, ARefusedAnswerNowLeavesTheJobRunning) {
  open();
  const std::string parent = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  generator.planner = [](const auto&) -> Result<PromptPlan> {
    return fail(ErrorCode::context_length_exceeded, "too long");
  };
  EXPECT_FALSE(submit({{"continue_from", parent}, {"mode", "answer_now"}}));
  EXPECT_EQ(state(parent), "running");
}

TEST_F(Resume, WhatCannotGoOnIsRefusedWithAReason) {
  open();
  const auto code = [&](json::object body) {
    const auto refused = submit(body);
    return refused ? std::string("ok") : std::string(to_string(refused.error().code));
  };
  const std::string running = submit_id({{"task", "t"}});
  EXPECT_EQ(code({{"continue_from", running}, {"mode", "resume"}}), "not_terminal");
  generator.complete(generator.run(0));
  ended(running);
  EXPECT_EQ(code({{"continue_from", running}, {"mode", "resume"}}), "bad_request");
  EXPECT_EQ(code({{"continue_from", running}, {"mode", "answer_now"}}), "bad_request");
  EXPECT_EQ(code({{"continue_from", "aaaaaaaaaaaaaaaaaaaaaaaaaa"}, {"mode", "resume"}}),
            "job_unknown");
  runs_seen = 1;
  const std::string cut = cut_job(2, Finish::output_limit);
  generator.set_model("other");
  EXPECT_EQ(code({{"continue_from", cut}, {"mode", "resume"}}), "bad_request");
}

TEST_F(Resume, OfAModelThatWasNeverLoadedOnlyTheFileIsKnown) {
  open();
  generator.set_model("", "/a.gguf");
  const std::string cut = cut_job(2, Finish::output_limit);
  generator.set_model("b", "/b.gguf");
  const auto refused = submit({{"continue_from", cut}, {"mode", "resume"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("(/a.gguf)"), std::string::npos)
      << refused.error().message;
}

TEST_F(Resume, AJobThatNoModelBeganGoesOnWithAnyModel) {
  open();
  generator.set_model("", "/a.gguf");
  generator.set_state(GeneratorState::failed, "no such file");
  const std::string failed = submit_id({{"task", "t"}});
  generator.end(generator.run(0), Finish::failed, Error{ErrorCode::model_missing, "no such file"});
  EXPECT_EQ(text_of(ended(failed), "reason"), "model_missing");
  generator.set_model("b", "/b.gguf");
  generator.set_state(GeneratorState::ready);
  const auto made = submit({{"continue_from", failed}, {"mode", "resume"}});
  ASSERT_TRUE(made) << made.error().message;
  generator.complete(generator.run(1));
  EXPECT_EQ(text_of(ended(text_of(made->envelope, "job_id")), "state"), "completed");
}

TEST_F(Resume, AFullWindowIsRefusedWithItsNumbers) {
  open();
  const std::string cut = cut_job(4, Finish::output_limit);
  generator.planner = [](const auto&) { return PromptPlan{10, 14, 2, 2, 4, "medium", "template"}; };
  const auto refused = submit({{"continue_from", cut}, {"mode", "resume"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_length_exceeded);
  EXPECT_EQ(refused.error().details.at("n_ctx"), 14);
}

TEST_F(Resume, ALoadedModelThatIsAnotherOneFailsWhatGoesOn) {
  open();
  const std::string cut = cut_job(2, Finish::output_limit);
  generator.set_state(GeneratorState::loading);
  const std::string id = submit_id({{"continue_from", cut}, {"mode", "resume"}});
  generator.set_model("other");
  generator.set_state(GeneratorState::ready);
  advance(1000);
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "state"), "failed");
  EXPECT_EQ(text_of(e, "reason"), "model_missing");
}

TEST_F(Resume, WhatEndsAsItBeginsLeavesTheOthersTheirPlaces) {
  open();
  const std::string cut = cut_job(2, Finish::output_limit);
  generator.set_state(GeneratorState::loading);
  const std::string first =
      submit_id({{"continue_from", cut}, {"mode", "resume"}, {"kind", "ask"}});
  const std::string second = submit_id({{"task", "one"}, {"kind", "ask"}});
  const std::string third = submit_id({{"task", "two"}});
  generator.set_model("other");
  generator.set_state(GeneratorState::ready);
  advance(1000);
  EXPECT_EQ(text_of(ended(first), "reason"), "model_missing");
  for (const std::string& id : {second, third})
    EXPECT_EQ(text_of(get(id).value(), "state"), "running");
}

}  // namespace
}  // namespace ponder::jobs
