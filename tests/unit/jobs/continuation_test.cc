// What a job that goes on from another one's last token is made of.
#include "jobs/continuation.h"

#include <gtest/gtest.h>

namespace ponder::jobs {
namespace {

JobRow ended(State state, Reason reason = Reason::none) {
  JobRow row;
  row.id = "abcdefghijklmnopqrstuvwxyz";
  row.state = state;
  row.reason = reason;
  row.effort_requested = "xhigh";
  return row;
}

StoredRequest request(Budgets budgets = {}) {
  StoredRequest out;
  out.generation.chat.messages = {{"user", "question"}};
  out.generation.chat.effort = Effort{Effort::Word::xhigh};
  out.generation.sampling.seed = 77;
  out.generation.budgets = budgets;
  return out;
}

std::vector<Chunk> text() {
  return {{Channel::reasoning, "think", {1, 2}},
          {Channel::reasoning, "ing", {3}},
          {Channel::answer, "yes", {4}}};
}

JobSpec spec(Mode mode) {
  JobSpec out;
  out.mode = mode;
  out.continue_from = "abcdefghijklmnopqrstuvwxyz";
  return out;
}

TEST(Continuation, OnlyWhatWasCutGoesOn) {
  const auto code = [](State state, Reason reason, Mode mode) {
    const auto refused = refuse_continuation(ended(state, reason), mode);
    return refused ? std::string("ok") : std::string(to_string(refused.error().code));
  };
  for (const Mode mode : {Mode::resume, Mode::answer_now}) {
    EXPECT_EQ(code(State::completed, Reason::none, mode), "bad_request");
    EXPECT_EQ(code(State::expired, Reason::none, mode), "gone");
    EXPECT_EQ(code(State::incomplete, Reason::schema_invalid, mode), "bad_request");
    for (const Reason reason : {Reason::output_limit, Reason::reasoning_exhausted,
                                Reason::stream_lost, Reason::deadline, Reason::stalled})
      EXPECT_EQ(code(State::incomplete, reason, mode), "ok");
    EXPECT_EQ(code(State::cancelled, Reason::none, mode), "ok");
    EXPECT_EQ(code(State::interrupted, Reason::none, mode), "ok");
    EXPECT_EQ(code(State::failed, Reason::poison, mode), "ok");
  }
  EXPECT_EQ(code(State::running, Reason::none, Mode::resume), "not_terminal");
  EXPECT_EQ(code(State::queued, Reason::none, Mode::resume), "not_terminal");
  EXPECT_EQ(code(State::running, Reason::none, Mode::answer_now), "ok");
  EXPECT_EQ(code(State::incomplete, Reason::repetition, Mode::resume), "bad_request");
  EXPECT_EQ(code(State::incomplete, Reason::repetition, Mode::answer_now), "ok");
}

TEST(Continuation, TheParentsRequestAndTextGoOn) {
  const auto made = continue_job(spec(Mode::resume), ended(State::cancelled), request(), text());
  ASSERT_TRUE(made);
  const StoredRequest& out = made->submission.request;
  EXPECT_EQ(made->submission.effort, "xhigh");
  EXPECT_EQ(out.generation.sampling.seed, 77u);
  EXPECT_EQ(out.generation.chat.messages.size(), 1u);
  EXPECT_FALSE(out.answer_now);
  EXPECT_EQ(out.carried.bytes, 11);
  EXPECT_EQ(out.carried.chunks, 2);  // chunks of one channel are put together
  EXPECT_EQ(out.carried.reasoning_tokens, 3);
  EXPECT_EQ(out.carried.answer_tokens, 1);
  ASSERT_EQ(made->text.size(), 2u);
  EXPECT_EQ(made->text[0].text, "thinking");
  EXPECT_EQ(made->text[0].tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(made->note, "");
}

TEST(Continuation, WhatTheParentDecidesIsSaidNotToBeUsed) {
  JobSpec asked = spec(Mode::resume);
  asked.task = "go on";
  asked.effort = Effort{Effort::Word::low};
  const auto made = continue_job(asked, ended(State::cancelled), request(), text());
  ASSERT_TRUE(made);
  EXPECT_EQ(made->submission.effort, "xhigh");
  EXPECT_NE(made->note.find("task, effort"), std::string::npos);
}

TEST(Continuation, AThoughtThatWasClosedFromOutsideStaysSo) {
  JobRow parent = ended(State::incomplete, Reason::output_limit);
  EXPECT_FALSE(continue_job(spec(Mode::resume), parent, request(), text())
                   ->submission.request.forced_answer);
  parent.facts["forced_answer"] = true;
  const auto made = continue_job(spec(Mode::resume), parent, request(), text());
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->submission.request.forced_answer);
  EXPECT_TRUE(decode_request(encode_request(made->submission.request))->forced_answer);
}

TEST(Continuation, TextThatWasHeldBackToTheEndComesAgain) {
  std::vector<Chunk> had = text();
  had.push_back({Channel::answer, "\n", {}});
  const auto made = continue_job(spec(Mode::resume), ended(State::incomplete, Reason::output_limit),
                                 request(), had);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->text.back().text, "yes");
}

TEST(Continuation, TextWithoutTokensCannotGoOn) {
  const std::vector<Chunk> bare{{Channel::answer, "yes", {}}};
  EXPECT_FALSE(continue_job(spec(Mode::resume), ended(State::cancelled), request(), bare));
  EXPECT_TRUE(continue_job(spec(Mode::resume), ended(State::cancelled), request(), {}));
}

TEST(Continuation, ASpentBudgetIsLiftedAndTheOtherStays) {
  const auto budgets = [](Reason reason, Budgets had, Budgets given) {
    JobSpec asked = spec(Mode::resume);
    asked.budgets = given;
    return continue_job(asked, ended(State::incomplete, reason), request(had), text())
        ->submission.request.generation.budgets;
  };
  Budgets had;
  had.max_reasoning_tokens = 3;
  had.max_answer_tokens = 50;
  Budgets got = budgets(Reason::reasoning_exhausted, had, {});
  EXPECT_FALSE(got.max_reasoning_tokens);
  EXPECT_EQ(got.max_answer_tokens, 50);
  got = budgets(Reason::output_limit, had, {});
  EXPECT_FALSE(got.max_answer_tokens);
  EXPECT_EQ(got.max_reasoning_tokens, 3);
  got = budgets(Reason::deadline, had, {});
  EXPECT_EQ(got.max_reasoning_tokens, 3);
  EXPECT_EQ(got.max_answer_tokens, 50);
  Budgets given;
  given.max_reasoning_tokens = 10;
  got = budgets(Reason::reasoning_exhausted, had, given);
  EXPECT_EQ(got.max_reasoning_tokens, 13);  // from here on
  EXPECT_EQ(got.max_answer_tokens, 50);
}

TEST(Continuation, AnEffortThatIsANumberIsLiftedAsWell) {
  StoredRequest had = request();
  had.generation.chat.effort = Effort{Effort::Word::medium, 3};
  JobRow parent = ended(State::incomplete, Reason::reasoning_exhausted);
  parent.effort_requested = "3";
  const auto made = continue_job(spec(Mode::resume), parent, had, text());
  EXPECT_EQ(made->submission.effort, "3");
  EXPECT_GT(*made->submission.request.generation.chat.effort->budget, 1000);
  EXPECT_TRUE(decode_request(encode_request(made->submission.request)));
}

TEST(Continuation, AnAnswerNowKeepsRoomForClosingAndAnswer) {
  Budgets had;
  had.max_reasoning_tokens = 3;
  had.max_answer_tokens = 50;
  const auto made =
      continue_job(spec(Mode::answer_now), ended(State::running), request(had), text());
  ASSERT_TRUE(made);
  const StoredRequest& out = made->submission.request;
  EXPECT_TRUE(out.answer_now);
  EXPECT_GT(*out.generation.budgets.max_reasoning_tokens, 3 + 64);
  EXPECT_EQ(out.generation.budgets.max_answer_tokens, 50);
  EXPECT_TRUE(out.generation.budgets.defaulted);  // lowered to what fits, not refused
}

TEST(Continuation, ACircleIsLeftOutBeforeAnAnswer) {
  std::vector<Chunk> loop{{Channel::reasoning, "start ", {1, 2, 3}}};
  for (int round = 0; round < 300; ++round)
    loop.push_back({Channel::reasoning, "ab", {7, 8}});
  const auto made = continue_job(spec(Mode::answer_now),
                                 ended(State::incomplete, Reason::repetition), request(), loop);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->text.at(0).text, "start ab");
  EXPECT_NE(made->note.find("circle"), std::string::npos);
}

}  // namespace
}  // namespace ponder::jobs
