// The engine behind its door, on the bundled model: in this process and in a worker.
#include "engine/run/local_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/generator/worker_generator.h"
#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using test::ask;
using test::Heard;
using test::RecordingSink;

class Pebble : public testing::Test {
 protected:
  static void SetUpTestSuite() { generator = new LocalGenerator(test::load_pebble()); }
  static void TearDownTestSuite() { delete generator; }

  GenerationId new_id() { return ++last_id; }
  Heard run(const GenerationRequest& request) {
    return test::run(*generator, new_id(), request, 60)->heard();
  }

  static inline LocalGenerator* generator = nullptr;
  static inline GenerationId last_id = 0;
};

GenerationRequest sampled(std::string text) {
  GenerationRequest r = ask(std::move(text));
  r.sampling.temperature = 1.0;
  r.sampling.seed = 1234;
  r.budgets.max_tokens = 150;
  return r;
}

TEST_F(Pebble, AnswersQuestionsRight) {
  const auto all = test::questions({"add", "sort", "echo", "clock", "json", "code", "follow_up"});
  ASSERT_EQ(all.size(), 7u);
  for (const test::Question& q : all) {
    const Heard h = run(q.request);
    ASSERT_EQ(h.ended.at(0).finish, Finish::end_token) << q.task;
    EXPECT_EQ(h.text(Channel::answer), q.answer) << q.task;
    EXPECT_NE(h.text(Channel::reasoning), "") << q.task;
    EXPECT_EQ(h.started.at(0).plan.prompt_tokens, h.ended[0].usage.prompt_tokens);
    EXPECT_EQ(h.prefill.back().done, h.prefill.back().total);
    EXPECT_GT(h.ended[0].usage.tokens_per_s, 0);
    EXPECT_GT(h.ended[0].usage.prefill_tokens_per_s, 0);
    EXPECT_GT(h.ended[0].usage.ttft_s, 0);
  }
}

TEST_F(Pebble, MakesAToolCallWithTypedArguments) {
  const test::Question q = test::questions({"tool_call"}).at(0);
  const Heard h = run(q.request);
  ASSERT_EQ(h.calls.size(), 1u);
  EXPECT_EQ(h.calls[0].name, q.call.at("name").as_string());
  EXPECT_EQ(json::value(h.calls[0].arguments), q.call.at("arguments"));
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
}

TEST_F(Pebble, ThinksNothingAtEffortNone) {
  GenerationRequest r = test::questions({"echo"}).at(0).request;
  r.chat.effort = Effort{Effort::Word::none, {}};
  const Heard h = run(r);
  EXPECT_EQ(h.text(Channel::reasoning), "");
  EXPECT_EQ(h.ended.at(0).usage.reasoning_tokens, 0);
  EXPECT_EQ(h.started.at(0).plan.reasoning_budget, 0);
}

TEST_F(Pebble, TwoAtOnceSayWhatEachSaysAlone) {
  const GenerationRequest one = sampled("What is 12 + 30?"), two = sampled("Sort 5, 3, 9, 1.");
  const auto alone_one = run(one).tokens(), alone_two = run(two).tokens();
  auto a = std::make_shared<RecordingSink>(), b = std::make_shared<RecordingSink>();
  generator->start(new_id(), one, a);
  generator->start(new_id(), two, b);
  ASSERT_TRUE(a->wait_end(60));
  ASSERT_TRUE(b->wait_end(60));
  EXPECT_EQ(a->heard().tokens(), alone_one);
  EXPECT_EQ(b->heard().tokens(), alone_two);
}

TEST_F(Pebble, ASeedFixesTheTextAndAnotherChangesIt) {
  GenerationRequest r = sampled("Tell me about numbers.");
  r.sampling.temperature = 3.0;
  r.sampling.top_p = 1.0;
  r.sampling.top_k = 0;
  r.budgets.max_tokens = 40;
  const auto once = run(r).tokens();
  EXPECT_EQ(run(r).tokens(), once);
  r.sampling.seed = 4321;
  EXPECT_NE(run(r).tokens(), once);
}

TEST_F(Pebble, BudgetsEndItAsIncomplete) {
  GenerationRequest r = test::questions({"collatz"}).at(0).request;
  r.budgets.max_reasoning_tokens = 10;
  Heard h = run(r);
  EXPECT_EQ(h.ended.at(0).finish, Finish::reasoning_exhausted);
  EXPECT_EQ(h.ended[0].usage.reasoning_tokens, 10);
  r = test::questions({"code"}).at(0).request;
  r.budgets.max_answer_tokens = 3;
  h = run(r);
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.ended[0].usage.answer_tokens, 3);
}

TEST_F(Pebble, AFullWindowEndsWithOutputLimit) {
  GenerationRequest r;
  r.raw_prompt = "a b c d";
  r.ignore_eos = true;
  LocalGenerator small(test::load_pebble(64));
  const Heard h = test::run(small, 1, r, 60)->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.started.at(0).plan.prompt_tokens + static_cast<std::int64_t>(h.tokens().size()), 64);
}

TEST_F(Pebble, PlansExactlyAndRefusesWithTheNumbers) {
  const GenerationRequest request = test::questions({"add"}).at(0).request;
  const PromptPlan plan = test::plan(*generator, request).value();
  const Heard h = run(request);
  EXPECT_EQ(plan.n_ctx, 4096);
  EXPECT_EQ(plan.prompt_tokens, h.ended.at(0).usage.prompt_tokens);
  EXPECT_EQ(plan.total_budget, 4096 - plan.prompt_tokens);
  EXPECT_EQ(h.started.at(0).plan.total_budget, plan.total_budget);
  std::string words;
  for (int i = 0; i < 4096; ++i)
    words += "word ";
  const auto over = test::plan(*generator, ask(words));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::context_length_exceeded);
  EXPECT_GT(over.error().details.at("n_prompt_tokens"), 4096);
  EXPECT_EQ(run(ask(words)).ended.at(0).error->code, ErrorCode::context_length_exceeded);
}

TEST_F(Pebble, CancelReachesALongPrefillWithinAChunk) {
  LocalGenerator large(test::load_pebble(32768));
  std::string words;
  for (int i = 0; i < 1500; ++i)
    words += "number " + std::to_string(i) + " ";
  auto sink = std::make_shared<RecordingSink>();
  large.start(1, ask(words), sink);
  ASSERT_TRUE(
      sink->wait([](const Heard& h) { return !h.prefill.empty() || !h.ended.empty(); }, 60));
  ASSERT_EQ(sink->heard().ended.size(), 0u)
      << sink->heard().ended[0].error.value_or(Error{}).message;
  large.cancel(1);
  ASSERT_TRUE(sink->wait_end(60));
  const Heard h = sink->heard();
  EXPECT_EQ(h.ended[0].finish, Finish::cancelled);
  EXPECT_LT(h.prefill.back().done, h.prefill.back().total);
  EXPECT_LE(h.prefill.size(), 4u);
}

TEST_F(Pebble, CancelReachesDecode) {
  GenerationRequest r = ask("x");
  r.ignore_eos = true;
  auto sink = std::make_shared<RecordingSink>();
  const GenerationId id = new_id();
  generator->start(id, r, sink);
  ASSERT_TRUE(sink->wait([](const Heard& h) { return h.tokens().size() > 3; }, 60));
  generator->cancel(id);
  ASSERT_TRUE(sink->wait_end(60));
  EXPECT_EQ(sink->finish(), Finish::cancelled);
}

TEST_F(Pebble, AShortAskEndsWhileALongOneRuns) {
  GenerationRequest r = ask("x");
  r.ignore_eos = true;
  auto sink = std::make_shared<RecordingSink>();
  const GenerationId id = new_id();
  generator->start(id, r, sink);
  ASSERT_TRUE(sink->wait([](const Heard& h) { return h.tokens().size() > 3; }, 60));
  EXPECT_EQ(run(test::questions({"echo"}).at(0).request).ended.at(0).finish, Finish::end_token);
  EXPECT_TRUE(sink->heard().ended.empty());
  generator->cancel(id);
  ASSERT_TRUE(sink->wait_end(60));
}

TEST_F(Pebble, AWorkerSaysTheSame) {
  WorkerOptions o;
  o.engine_program = PONDER_BIN_DIR "/ponder-engine";
  o.model_path = test::pebble_file();
  o.n_ctx = 4096;
  WorkerGenerator worker(o);
  const test::Question q = test::questions({"add"}).at(0);
  const Heard there = test::run(worker, 1, q.request, 60)->heard();
  EXPECT_EQ(there.ended.at(0).finish, Finish::end_token);
  EXPECT_EQ(there.text(Channel::answer), q.answer);
  EXPECT_EQ(there.tokens(), run(q.request).tokens());
  EXPECT_EQ(test::run(worker, 2, sampled("Sort 5, 3, 9."), 60)->heard().tokens(),
            run(sampled("Sort 5, 3, 9.")).tokens());
  EXPECT_EQ(worker.status().model.id, "pebble");
  EXPECT_EQ(worker.status().model.model_class, "demo");
  EXPECT_EQ(test::tokenize(worker, "hello").value(), test::tokenize(*generator, "hello").value());
}

TEST(WorkerModel, AFileThatIsNoModelIsRefusedWithASentence) {
  WorkerOptions o;
  o.engine_program = PONDER_BIN_DIR "/ponder-engine";
  o.model_path = PONDER_SOURCE_DIR "/models/pebble/eval.jsonl";
  WorkerGenerator worker(o);
  const auto plan = test::plan(worker, ask("x"));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::model_missing);
  EXPECT_EQ(worker.status().state, GeneratorState::failed);
  EXPECT_THAT(worker.status().reason, testing::HasSubstr("eval.jsonl"));
  EXPECT_EQ(worker.status().restarts, 0);
}

TEST(LocalGeneratorEnd, DestructionEndsWhatRunsAsCancelled) {
  auto sink = std::make_shared<RecordingSink>();
  {
    LocalGenerator generator(test::load_pebble(512));
    GenerationRequest r = ask("x");
    r.ignore_eos = true;
    generator.start(1, r, sink);
  }
  EXPECT_EQ(sink->finish(), Finish::cancelled);
}

}  // namespace
}  // namespace ponder::run
