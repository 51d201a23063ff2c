#include "engine/worker/stub_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/worker/stub_script.h"
#include "tests/unit/generator/recording_sink.h"

namespace ponder::worker {
namespace {

using test::ask;
using test::run;
using testing::HasSubstr;

std::int64_t words(const std::string& text) {
  return text.empty() ? 0 : 1 + std::count(text.begin(), text.end(), ' ');
}

TEST(StubScript, FieldsOfAllMarkersCombine) {
  const StubScript s =
      parse_stub_script("a [[stub tokens=7 rate=1.5]] b [[stub fault=hang\n after=3 text=ja]]")
          .value();
  EXPECT_EQ(s.tokens, 7);
  EXPECT_EQ(s.rate, 1.5);
  EXPECT_EQ(s.fault, StubFault::hang);
  EXPECT_EQ(s.after, 3);
  EXPECT_EQ(s.word, "ja");
  EXPECT_EQ(s.think, 20);
  EXPECT_EQ(parse_stub_script("[[stub]]").value().after, 5);
}

TEST(StubScript, RefusesWhatItDoesNotKnow) {
  for (const char* bad :
       {"[[stub tokens=x]]", "[[stub tokens=-1]]", "[[stub color=red]]", "[[stub tokens]]",
        "[[stub fault=melt]]", "[[stub rate=0]]", "[[stub tokens=3", "[[stub text=]]"})
    EXPECT_FALSE(parse_stub_script(bad)) << bad;
}

class Stub : public testing::Test {
 protected:
  StubGenerator stub{4096};
};

TEST_F(Stub, ThinksTwentyTokensAndAnswersFortyByDefault) {
  const auto sink = run(stub, 1, ask("hello"));
  const test::Heard h = sink->heard();
  ASSERT_EQ(h.started.size(), 1u);
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_EQ(words(h.text(Channel::reasoning)), 20);
  EXPECT_EQ(words(h.text(Channel::answer)), 40);
  EXPECT_EQ(h.ended[0].usage.reasoning_tokens, 20);
  EXPECT_EQ(h.ended[0].usage.answer_tokens, 40);
  EXPECT_EQ(h.tokens().size(), 60u);
  EXPECT_EQ(h.prefill.back().done, h.prefill.back().total);
  EXPECT_EQ(h.after_end, 0);
}

TEST_F(Stub, ItsTextIsAFunctionOfThePromptAlone) {
  const std::string once = run(stub, 1, ask("one"))->heard().text(Channel::answer);
  EXPECT_EQ(run(stub, 2, ask("one"))->heard().text(Channel::answer), once);
  EXPECT_EQ(run(stub, 3, ask("one", "none"))->heard().text(Channel::answer), once);
  EXPECT_NE(run(stub, 4, ask("two"))->heard().text(Channel::answer), once);
  StubGenerator other(4096);
  EXPECT_EQ(run(other, 1, ask("one"))->heard().text(Channel::answer), once);
}

TEST_F(Stub, TheMarkersSetLengthsAndWord) {
  const test::Heard h = run(stub, 1, ask("[[stub tokens=3 think=2 text=ja]]"))->heard();
  EXPECT_EQ(h.text(Channel::reasoning), "ja ja");
  EXPECT_EQ(h.text(Channel::answer), "ja ja ja");
  EXPECT_EQ(run(stub, 2, ask("[[stub think=9]]", "none"))->heard().text(Channel::reasoning), "");
}

TEST_F(Stub, OnlyTheLastUserTextIsRead) {
  GenerationRequest r = ask("[[stub tokens=1 text=old]]");
  r.chat.messages.push_back({"assistant", "[[stub tokens=2]]"});
  r.chat.messages.push_back({"user", "[[stub tokens=4 text=new]]"});
  EXPECT_EQ(run(stub, 1, r)->heard().text(Channel::answer), "new new new new");
}

TEST_F(Stub, ABadMarkerFailsTheGenerationWithASentence) {
  const Ended ended = run(stub, 1, ask("[[stub fault=melt]]"))->heard().ended.at(0);
  EXPECT_EQ(ended.finish, Finish::failed);
  EXPECT_EQ(ended.error->code, ErrorCode::bad_request);
  EXPECT_THAT(ended.error->message, HasSubstr("fault=melt"));
}

TEST_F(Stub, BudgetsEndAsWithAModel) {
  GenerationRequest r = ask("[[stub think=500]]");
  r.budgets.max_reasoning_tokens = 50;
  test::Heard h = run(stub, 1, r)->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::reasoning_exhausted);
  EXPECT_EQ(h.ended[0].usage.reasoning_tokens, 50);
  EXPECT_EQ(h.text(Channel::answer), "");

  r = ask("[[stub tokens=500 think=5]]");
  r.budgets.max_answer_tokens = 30;
  h = run(stub, 2, r)->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.ended[0].usage.answer_tokens, 30);

  r = ask("[[stub tokens=500 think=5]]");
  r.budgets.max_tokens = 12;
  h = run(stub, 3, r)->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.tokens().size(), 12u);

  r = ask("[[stub tokens=5 think=5]]");  // thinks exactly to its budget
  r.budgets.max_reasoning_tokens = 5;
  r.budgets.max_answer_tokens = 5;
  EXPECT_EQ(run(stub, 4, r)->finish(), Finish::end_token);
}

TEST_F(Stub, ItsWindowIsCountedInPiecesOfFourBytes) {
  const std::string text(4 * 4000, 'x');
  const PromptPlan plan = test::plan(stub, ask(text)).value();
  EXPECT_EQ(plan.prompt_tokens,
            static_cast<std::int64_t>(test::tokenize(stub, "user: " + text + "\n")->size()));
  EXPECT_EQ(plan.n_ctx, 4096);
  const auto over = test::plan(stub, ask(std::string(4 * 4096, 'x')));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::context_length_exceeded);
  EXPECT_EQ(run(stub, 1, ask(std::string(4 * 4096, 'x')))->heard().ended.at(0).error->code,
            ErrorCode::context_length_exceeded);
}

TEST_F(Stub, AFullWindowEndsWithOutputLimit) {
  const test::Heard h = run(stub, 1, ask("[[stub tokens=100000 think=0 rate=1000000]]"))->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.ended[0].usage.prompt_tokens + h.ended[0].usage.answer_tokens, 4096);
}

TEST_F(Stub, StopStringsEndTheAnswerAndAreNotInIt) {
  GenerationRequest r = ask("[[stub tokens=9 think=4 text=abc]]");
  r.sampling.stop = {"c ab"};
  const test::Heard h = run(stub, 1, r)->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::stop_string);
  EXPECT_EQ(h.text(Channel::answer), "ab");
  EXPECT_EQ(h.text(Channel::reasoning), "abc abc abc abc");
}

TEST_F(Stub, EndlessThinkingRunsIntoItsBudget) {
  GenerationRequest r = ask("[[stub think=2 fault=endless_thinking rate=1000000]]");
  EXPECT_EQ(run(stub, 1, r)->finish(), Finish::reasoning_exhausted);
  r.budgets.max_reasoning_tokens = 7;
  EXPECT_EQ(run(stub, 2, r)->heard().ended.at(0).usage.reasoning_tokens, 7);
}

TEST_F(Stub, ARunThatResumesGoesOnWhereverItWasCutAlsoBehindAForcedClose) {
  GenerationRequest r = ask("[[stub think=30 tokens=10 rate=1000000]]");
  r.budgets.max_reasoning_tokens = 6;
  r.on_limit = OnLimit::answer;
  const test::Heard whole = run(stub, 1, r)->heard();
  const auto tokens = whole.tokens();
  ASSERT_EQ(tokens.size(), 16u);
  r.on_limit = OnLimit::stop;  // closed by a wish that the second run does not know of
  for (std::size_t cut = 7; cut <= tokens.size(); ++cut) {
    r.resume.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(cut));
    const test::Heard rest = run(stub, 1 + cut, r)->heard();
    EXPECT_EQ(rest.ended.at(0).finish, Finish::end_token) << cut;
    EXPECT_TRUE(rest.ended[0].forced_answer) << cut;
    EXPECT_EQ(rest.text(Channel::reasoning), "") << cut;
    const std::string answer = whole.text(Channel::answer);
    EXPECT_TRUE(answer.ends_with(rest.text(Channel::answer))) << cut;
    EXPECT_EQ(rest.tokens().size(), tokens.size() - cut) << cut;
  }
}

TEST_F(Stub, ALoopIsNoticedUnlessTheEndIsIgnored) {
  GenerationRequest r = ask("[[stub tokens=3000 think=3 fault=loop after=10 rate=1000000]]");
  const test::Heard h = run(stub, 1, r)->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::repetition);
  const auto tokens = h.tokens();
  EXPECT_LT(tokens.size(), 200u);
  for (std::size_t i = 10; i < tokens.size(); ++i)
    EXPECT_EQ(tokens[i], tokens[10]);
  r.ignore_eos = true;
  r.budgets.max_tokens = 500;
  EXPECT_EQ(run(stub, 2, r)->finish(), Finish::output_limit);
}

TEST_F(Stub, BadBytesComeOutAsReplacementCharacters) {
  const test::Heard h =
      run(stub, 1, ask("[[stub tokens=9 think=2 fault=invalid_utf8 after=6]]"))->heard();
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_THAT(h.text(Channel::answer), HasSubstr("\xEF\xBF\xBD"));
}

TEST_F(Stub, OutOfMemoryAndDeviceLostAreFailures) {
  const Ended oom = run(stub, 1, ask("[[stub fault=out_of_memory after=8]]"))->heard().ended.at(0);
  EXPECT_EQ(oom.error->code, ErrorCode::out_of_memory);
  EXPECT_EQ(oom.usage.reasoning_tokens, 8);
  EXPECT_EQ(run(stub, 2, ask("[[stub fault=device_lost]]"))->heard().ended.at(0).error->code,
            ErrorCode::device_lost);
}

TEST_F(Stub, SlowIsAtMostTwoTokensASecondAfterTheMark) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(run(stub, 1, ask("[[stub tokens=4 think=4 fault=slow after=7]]"))->finish(),
            Finish::end_token);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(400));
}

TEST_F(Stub, CancelEndsPrefillTokensAndAHang) {
  for (const char* marker : {"[[stub prefill_s=1000]]", "[[stub rate=1000 tokens=1000000 think=0]]",
                             "[[stub fault=hang]]"}) {
    auto sink = std::make_shared<test::RecordingSink>();
    stub.start(1, ask(marker), sink);
    ASSERT_TRUE(sink->wait([](const test::Heard& h) { return !h.started.empty(); }));
    stub.cancel(1);
    ASSERT_TRUE(sink->wait_end());
    EXPECT_EQ(sink->finish(), Finish::cancelled) << marker;
  }
  stub.cancel(99);  // unknown: ignored
}

TEST_F(Stub, AHangLeavesOthersRunning) {
  auto hung = std::make_shared<test::RecordingSink>();
  stub.start(1, ask("[[stub fault=hang]]"), hung);
  ASSERT_TRUE(hung->wait([](const test::Heard& h) { return h.tokens().size() == 5; }));
  EXPECT_EQ(run(stub, 2, ask("x"))->finish(), Finish::end_token);
  EXPECT_TRUE(hung->heard().ended.empty());
}

TEST_F(Stub, ALongPrefillReportsItsProgress) {
  const test::Heard h =
      run(stub, 1, ask("[[stub prefill_s=0.3]] " + std::string(4000, 'x')))->heard();
  ASSERT_GE(h.prefill.size(), 6u);
  for (std::size_t i = 1; i < h.prefill.size(); ++i)
    EXPECT_GE(h.prefill[i].done, h.prefill[i - 1].done);
  EXPECT_GE(h.ended.at(0).usage.ttft_s, 0.3);
}

TEST(StubEnd, DestructionEndsWhatRunsAsCancelled) {
  auto sink = std::make_shared<test::RecordingSink>();
  {
    StubGenerator stub(0);
    stub.start(1, ask("[[stub fault=hang]]"), sink);
  }
  EXPECT_EQ(sink->finish(), Finish::cancelled);
}

}  // namespace
}  // namespace ponder::worker
