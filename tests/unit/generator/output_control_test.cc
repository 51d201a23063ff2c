// What steers an output from outside: forced answers, resumption, guesses, schemas. Long file: one
// fixture with the models that write for all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "engine/run/output_stream.h"
#include "engine/sample/random.h"
#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using test::Heard;
using test::RecordingSink;
using Ids = std::vector<text::TokenId>;

class Control : public testing::Test {
 protected:
  const text::Tokenizer& tokenizer = *test::pebble_vocabulary().tokenizer;
  const text::TokenId think_end = tokenizer.special_id("</think>");
  GenerationRequest request;
  PromptPlan plan{10, 100000, 50000, 50000, 100000, "medium", "template"};
  bool starts_thinking = true;
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();

  std::unique_ptr<OutputStream> stream() {
    sink = std::make_shared<RecordingSink>();
    return std::make_unique<OutputStream>(tokenizer, request, plan, starts_thinking, sink,
                                          std::chrono::steady_clock::now());
  }
  Ids ids(const std::string& text) const { return tokenizer.encode(text, true); }

  /// Logits that leave one token to choose.
  std::vector<float> only(text::TokenId id) const {
    std::vector<float> logits(static_cast<std::size_t>(tokenizer.size()), -50.0f);
    logits[static_cast<std::size_t>(id)] = 50.0f;
    return logits;
  }
  /// A model of noise: logits that are a function of the number of tokens before.
  std::vector<float> noise(std::size_t made, double spread) const {
    std::vector<float> logits(static_cast<std::size_t>(tokenizer.size()));
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>(spread * sample::uniform(5, made, i));
    return logits;
  }

  /// Thinks the same words over and over, and answers once the thinking is closed.
  struct Thinker {
    Ids thought, answer;
    std::size_t thinks = 0, answers = 0;
    text::TokenId think_end;
    bool closed = false;
    text::TokenId next() const {
      return closed ? answer[std::min(answers, answer.size() - 1)]
                    : thought[thinks % thought.size()];
    }
    /// What came instead of its own token was forced.
    void heard(text::TokenId id) {
      if (id == next()) ++(closed ? answers : thinks);
      closed = closed || id == think_end;
    }
  };
  Thinker thinker(const std::string& thought, const std::string& answer = "Seven.<|im_end|>") {
    return {ids(thought), ids(answer), 0, 0, think_end, false};
  }
  /// Until it ends; `at` tokens in, `then` is called.
  Heard run(OutputStream& out, Thinker model, std::size_t at = SIZE_MAX,
            const std::function<void()>& then = {}) {
    for (std::size_t made = 0; !out.ended() && made < 5000; ++made) {
      if (made == at) then();
      std::vector<float> logits = only(model.next());
      if (const auto id = out.next(logits)) model.heard(*id);
    }
    if (!out.ended()) out.end(Finish::cancelled);
    return sink->heard();
  }
};

TEST_F(Control, ASpentReasoningBudgetIsAnsweredFrom) {
  request.on_limit = OnLimit::answer;
  for (const std::int64_t budget : {1, 2, 3, 20, 100, 400}) {
    plan.reasoning_budget = budget;
    plan.total_budget = budget + 50;
    plan.answer_budget = 50;
    const Heard h = run(*stream(), thinker("on and on "));
    EXPECT_EQ(h.ended.at(0).finish, Finish::end_token) << budget;
    EXPECT_TRUE(h.ended[0].forced_answer);
    EXPECT_EQ(h.text(Channel::answer), "Seven.");
    EXPECT_LE(h.ended[0].usage.reasoning_tokens, std::max<std::int64_t>(budget, 2));
    EXPECT_GE(h.ended[0].usage.reasoning_tokens, budget - 1 - budget / 8);
    Ids tail = h.tokens();
    const Ids answer = ids("Seven.");
    ASSERT_GT(tail.size(), answer.size());
    tail.resize(tail.size() - answer.size());
    EXPECT_THAT(tokenizer.decode(tail), testing::EndsWith("</think>\n\n"));
  }
}

TEST_F(Control, WhatIsToldFromTheForcedClosingOnSaysSo) {
  request.on_limit = OnLimit::answer;
  plan.reasoning_budget = 30;
  bool closed = false;
  for (const Delta& d : run(*stream(), thinker("on and on ")).deltas) {
    closed = closed || d.forced_answer;
    EXPECT_EQ(d.forced_answer, closed);
    EXPECT_FALSE(d.channel == Channel::answer && !closed);
    EXPECT_TRUE(d.text.empty() || closed == (d.channel == Channel::answer));
  }
  EXPECT_TRUE(closed);
  for (const Delta& d : run(*stream(), thinker("a b\n</think>\n\n")).deltas)
    EXPECT_FALSE(d.forced_answer);
}

TEST_F(Control, ThinkingIsClosedAfterASentenceWhereOneEndsInTime) {
  request.on_limit = OnLimit::answer;
  plan.reasoning_budget = 400;
  Heard h = run(*stream(), thinker("We add two and three to five. Then it is 3.5 of them. "));
  EXPECT_TRUE(h.ended.at(0).forced_answer);
  EXPECT_THAT(h.text(Channel::reasoning),
              testing::AnyOf(testing::EndsWith("to five."), testing::EndsWith("of them.")));
  h = run(*stream(), thinker("and 3.5 or 4.25 more "));
  EXPECT_EQ(h.ended.at(0).usage.reasoning_tokens, 400) << "a point in a number is no end";
}

TEST_F(Control, ThinkingThatClosesItselfIsNotForced) {
  request.on_limit = OnLimit::answer;
  const Heard h = run(*stream(), thinker("a b\n</think>\n\n"));
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_FALSE(h.ended[0].forced_answer);
}

TEST_F(Control, AnswerNowClosesSoonAtAnyMoment) {
  for (const std::size_t at : {0u, 1u, 7u, 100u}) {
    auto out = stream();
    const Heard h = run(*out, thinker("on and on "), at, [&] { out->answer_now(); });
    EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
    EXPECT_TRUE(h.ended[0].forced_answer);
    EXPECT_EQ(h.text(Channel::answer), "Seven.");
    EXPECT_LE(h.ended[0].usage.reasoning_tokens, static_cast<std::int64_t>(at) + 64 + 2);
  }
  auto out = stream();
  const Heard h = run(*out, thinker("A line.\n"), 8, [&] { out->answer_now(); });
  EXPECT_LE(h.ended.at(0).usage.reasoning_tokens, 14);
  EXPECT_THAT(h.text(Channel::reasoning), testing::EndsWith("A line."));
}

TEST_F(Control, AnswerNowIsIgnoredOutsideThinking) {
  auto out = stream();
  Heard h = run(*out, thinker("a\n</think>", "\n\none two three four five<|im_end|>"),
                ids("a\n</think>").size() + 2, [&] { out->answer_now(); });
  EXPECT_FALSE(h.ended.at(0).forced_answer);
  EXPECT_EQ(h.text(Channel::answer), "one two three four five");
  request.chat.tools =
      parse_json(R"([{"type": "function", "function": {"name": "f"}}])")->as_array();
  out = stream();
  h = run(*out, thinker("a <tool_call>\n<function=f>\n</function>\n</tool_call><|im_end|>"),
          ids("a <tool_call>").size() + 1, [&] { out->answer_now(); });
  EXPECT_EQ(h.calls.size(), 1u);
  EXPECT_FALSE(h.ended.at(0).forced_answer);
  EXPECT_EQ(h.ended[0].finish, Finish::end_token);
}

TEST_F(Control, AnEndTokenInThinkingIsAnsweredFromWhereThatWasAsked) {
  request.on_limit = OnLimit::answer;
  Heard h = run(*stream(), thinker("I wonder<|im_end|>"));
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_TRUE(h.ended[0].forced_answer);
  EXPECT_EQ(h.text(Channel::reasoning), "I wonder");
  EXPECT_EQ(h.text(Channel::answer), "Seven.");
  request.on_limit = OnLimit::stop;
  h = run(*stream(), thinker("I wonder<|im_end|>"));
  EXPECT_EQ(h.ended.at(0).finish, Finish::stream_lost);
}

TEST_F(Control, PropertyNoBudgetIsEverExceeded) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    request.on_limit = random() % 2 ? OnLimit::answer : OnLimit::stop;
    plan.answer_budget = random() % 30;
    plan.reasoning_budget = 1 + random() % 90;
    plan.total_budget = plan.reasoning_budget + plan.answer_budget;
    auto out = stream();
    const bool asks = random() % 2 != 0;
    const Heard h = run(*out, thinker("so it. is then", "one two three four five<|im_end|>"),
                        asks ? random() % 80 : SIZE_MAX, [&] { out->answer_now(); });
    const Ended& e = h.ended.at(0);
    EXPECT_LE(static_cast<std::int64_t>(h.tokens().size()), plan.total_budget);
    EXPECT_NE(e.finish, Finish::cancelled);
    const bool answers = request.on_limit == OnLimit::answer || e.forced_answer;
    EXPECT_EQ(e.finish == Finish::end_token || e.finish == Finish::output_limit, answers);
    EXPECT_EQ(e.finish == Finish::reasoning_exhausted, !answers);
    EXPECT_TRUE(e.finish != Finish::end_token || !h.text(Channel::answer).empty());
  }
}

TEST_F(Control, AResumedOutputGoesOnAsIfItHadNeverBeenCut) {
  request.on_limit = OnLimit::answer;
  request.sampling.stop = {"never said"};
  plan.reasoning_budget = 30;
  const auto model = [&] { return thinker("on. and 9 on ", "Seven never ends.<|im_end|>"); };
  const Heard whole = run(*stream(), model());
  const Ids all = whole.tokens();
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    auto out = stream();
    Thinker rest = model();
    for (std::size_t i = 0; i < cut; ++i) {
      out->replay(all[i]);
      rest.heard(all[i]);
    }
    const Heard h = run(*out, rest);
    EXPECT_EQ(h.tokens(), Ids(all.begin() + static_cast<std::ptrdiff_t>(cut), all.end())) << cut;
    EXPECT_EQ(h.ended.at(0).finish, whole.ended.at(0).finish);
    EXPECT_EQ(h.ended[0].forced_answer, whole.ended[0].forced_answer) << cut;
    EXPECT_EQ(h.ended[0].usage.reasoning_tokens, whole.ended[0].usage.reasoning_tokens);
    EXPECT_EQ(h.ended[0].usage.answer_tokens, whole.ended[0].usage.answer_tokens);
  }
}

/// What was told, in order, as one text: channels and calls are marked where they change.
class Transcript final : public OutputSink {
 public:
  void on_started(const Started&) override {}
  void on_prefill(const PrefillProgress&) override {}
  void on_delta(const Delta& delta) override {
    told_tokens += delta.tokens.size();
    tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (delta.text.empty()) return;
    const std::string mark = delta.channel == Channel::answer ? "[answer]" : "[reasoning]";
    if (mark != std::exchange(channel_, mark)) text += mark;
    text += delta.text;
  }
  void on_tool_call(const ToolCallMade& made) override {
    text += "[call " + made.call.name + to_json(made.call.arguments) + "]";
    channel_.clear();
  }
  void on_ended(const Ended& ended) override { finish = ended.finish; }

  std::string text;
  std::size_t told_tokens = 0;
  Ids tokens;
  std::optional<Finish> finish;

 private:
  std::string channel_;
};

TEST_F(Control, WhatIsToldBeforeAndAfterAnyCutIsTheUncutText) {
  request.chat.tools =
      parse_json(R"([{"type": "function", "function": {"name": "f"}}])")->as_array();
  request.sampling.stop = {"Stop. Here", "never said"};
  const std::string thought = "a <b </thi nk> \xC3\xA4 \xF0\x9F\x99\x82 \n x <tool_c\n</think>\n\n";
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=n>\n12 \xC3\xA4\n</parameter>\n</function>\n"
      "</tool_call>";
  const std::string scripts[] = {
      thought + "So,  \n\n" + call + "\n\n" + call + "\nthen Stop. There<|im_end|>",
      thought + "One <tool_call> never neve Stop. Here and more<|im_end|>",
      thought + "One. \n <tool_call>\n<function=f>\n<parameter=n>\n1<|im_end|>",
      "a " + call + " and Stop. \xF0\x9F\x99\x82<|im_end|>",
  };
  for (const std::string& script : scripts) {
    const Ids all = ids(script);
    const auto run_from = [&](const std::shared_ptr<Transcript>& to, std::size_t from,
                              std::size_t until, bool cancelled) {
      OutputStream out(tokenizer, request, plan, starts_thinking, to,
                       std::chrono::steady_clock::now());
      for (std::size_t i = 0; i < from; ++i)
        out.replay(all[i]);
      for (std::size_t i = from; i < until && !out.ended(); ++i) {
        std::vector<float> logits = only(all[i]);
        out.next(logits);
      }
      if (cancelled) out.end(Finish::cancelled);
    };
    const auto whole = std::make_shared<Transcript>();
    run_from(whole, 0, all.size(), false);
    ASSERT_TRUE(whole->finish);
    for (std::size_t cut = 0; cut <= whole->told_tokens; ++cut) {
      for (const bool cancelled : {false, true}) {
        const auto told = std::make_shared<Transcript>();
        run_from(told, 0, cut, cancelled);
        EXPECT_EQ(told->told_tokens, cut);
        run_from(told, cut, all.size(), false);
        EXPECT_EQ(told->text, whole->text) << script << " cut at " << cut << cancelled;
        EXPECT_EQ(told->finish, whole->finish);
        EXPECT_EQ(told->told_tokens, whole->told_tokens);
      }
    }
  }
}

/// Cuts a run after every number of tokens and resumes it from what it told.
// T29, llama.cpp#28182: a budget that closed the thinking left pieces of it in the answer.
TEST_F(Control, NoCutInOrAroundAForcedClosingIsHeard) {
  request.on_limit = OnLimit::answer;
  const std::pair<std::int64_t, const char*> cases[] = {
      {1000, "I wonder<|im_end|>"}, {30, "on. and 9 on "}, {3, "on and on "}};
  for (const auto& one : cases) {
    plan.reasoning_budget = one.first;
    const char* const thought = one.second;
    const auto run_on = [&](const std::shared_ptr<Transcript>& to, std::size_t most, bool cancel) {
      OutputStream out(tokenizer, request, plan, true, to, std::chrono::steady_clock::now());
      Thinker model = thinker(thought);
      for (const text::TokenId id : Ids(to->tokens)) {
        out.replay(id);
        model.heard(id);
      }
      for (std::size_t i = 0; i < most && !out.ended(); ++i) {
        std::vector<float> logits = only(model.next());
        if (const auto id = out.next(logits)) model.heard(*id);
      }
      if (cancel) out.end(Finish::cancelled);
    };
    const auto whole = std::make_shared<Transcript>();
    run_on(whole, 1000, false);
    ASSERT_EQ(whole->finish, Finish::end_token) << thought;
    for (std::size_t cut = 0; cut <= whole->told_tokens; ++cut) {
      for (const bool cancelled : {false, true}) {
        const auto told = std::make_shared<Transcript>();
        run_on(told, cut, cancelled);
        run_on(told, 1000, false);
        EXPECT_EQ(told->text, whole->text) << thought << " cut at " << cut << cancelled;
        EXPECT_EQ(told->tokens, whole->tokens) << thought << " cut at " << cut << cancelled;
        EXPECT_EQ(told->finish, whole->finish);
      }
    }
  }
}

TEST_F(Control, ASchemaHoldsOnAfterAnyCut) {
  request.schema = parse_json(R"({"type": "object", "properties": {"a": {"type": "array", "items":
      {"enum": ["x", 1, null]}}, "b": {"type": "string", "maxLength": 9}}, "required": ["a", "b"]})")
                       ->as_object();
  request.sampling.seed = 3;
  request.sampling.temperature = 2.0;
  const Ids thought = ids("so\n</think>");
  const auto run_on = [&](const std::shared_ptr<Transcript>& to, std::size_t most) {
    OutputStream out(tokenizer, request, plan, true, to, std::chrono::steady_clock::now());
    const Ids before = to->tokens;
    for (const text::TokenId id : before)
      out.replay(id);
    for (std::size_t i = before.size(); i < before.size() + most && !out.ended(); ++i) {
      std::vector<float> logits = i < thought.size() ? only(thought[i]) : noise(i, 8);
      out.next(logits);
    }
  };
  const auto whole = std::make_shared<Transcript>();
  run_on(whole, 2000);
  ASSERT_EQ(whole->finish, Finish::end_token);
  for (std::size_t cut = 0; cut <= whole->told_tokens; ++cut) {
    const auto told = std::make_shared<Transcript>();
    run_on(told, cut);
    run_on(told, 2000);
    EXPECT_EQ(told->text, whole->text) << cut;
    EXPECT_EQ(told->tokens, whole->tokens) << cut;
    EXPECT_EQ(told->finish, whole->finish) << cut;
  }
}

TEST_F(Control, AnOutputThatWasOverIsOverWhenResumed) {
  plan.reasoning_budget = 4;
  auto out = stream();
  for (const text::TokenId id : ids("one two three four five six seven"))
    out->replay(id);
  std::vector<float> logits = only(5);
  EXPECT_FALSE(out->next(logits));
  EXPECT_EQ(sink->finish(), Finish::reasoning_exhausted);
  EXPECT_TRUE(sink->heard().tokens().empty());
}

TEST_F(Control, PropertyAGuessIsWhatComes) {
  request.sampling.seed = 6;
  request.sampling.presence_penalty = 0.5;
  request.sampling.temperature = 1.0;
  request.on_limit = OnLimit::answer;
  for (text::TokenId id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.is_end(id)) request.sampling.logit_bias.emplace_back(id, -100.0f);
  plan.reasoning_budget = 60;
  plan.total_budget = 200;
  for (const bool with_schema : {false, true}) {
    if (with_schema) request.schema = {{"type", "object"}};
    auto first = stream();
    Ids all;
    for (std::size_t i = 0; !first->ended(); ++i) {
      std::vector<float> logits = noise(i, 30);
      if (const auto id = first->next(logits)) all.push_back(*id);
    }
    ASSERT_GT(all.size(), 60u);
    auto again = stream();
    for (std::size_t i = 0; i + 4 < all.size(); ++i) {
      for (std::size_t ahead = 0; ahead < 4; ++ahead) {
        std::vector<float> logits = noise(i + ahead, 30);
        EXPECT_EQ(again->guess(logits, std::span(all).subspan(i, ahead)), all[i + ahead])
            << i << " and " << ahead;
      }
      std::vector<float> logits = noise(i, 30);
      EXPECT_EQ(again->next(logits), all[i]);
    }
  }
}

// T42, mlx-serve#331, vllm#44012: a schema bent the thinking, doubled braces or spammed brackets.
TEST_F(Control, NoiseUnderASchemaIsAJsonTextOfIt) {
  request.schema = parse_json(R"({"type": "object", "properties": {
      "kind": {"enum": ["a", "b", null]}, "count": {"type": "integer", "minimum": 3, "maximum": 40},
      "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3}},
      "required": ["kind", "count"]})")
                       ->as_object();
  int round = 0;
  for (const double temperature : {0.0, 0.7, 5.0}) {
    for (const int top_k : {0, 20}) {
      for (const bool thinks : {false, true}) {
        starts_thinking = thinks;
        request.sampling.temperature = temperature;
        request.sampling.top_k = top_k;
        request.sampling.seed = ++round;
        auto out = stream();
        if (thinks) {
          for (const text::TokenId id : ids("so\n</think>")) {
            std::vector<float> logits = only(id);
            out->next(logits);
          }
        }
        for (std::size_t i = 0; !out->ended() && i < 2000; ++i) {
          std::vector<float> logits = noise(i + 1000 * static_cast<std::size_t>(round), 8);
          out->next(logits);
        }
        const Heard h = sink->heard();
        ASSERT_EQ(h.ended.size(), 1u);
        EXPECT_EQ(h.ended[0].finish, Finish::end_token);
        const std::string text = h.text(Channel::answer);
        const auto value = parse_json_object(text);
        ASSERT_TRUE(value) << text;
        EXPECT_GE(value->at("count").as_int64(), 3);
        EXPECT_LE(value->at("count").as_int64(), 40);
        EXPECT_TRUE(!value->contains("tags") || value->at("tags").as_array().size() <= 3u);
      }
    }
  }
}

TEST_F(Control, UnderASchemaTagsAreTextAndABudgetCutsAsEver) {
  starts_thinking = false;
  request.schema = {{"type", "string"}};
  request.budgets.max_answer_tokens = 1000;
  auto out = stream();
  for (const char* piece : {"\"<tool_call>", "\n"}) {
    for (const text::TokenId id : tokenizer.encode(piece, false)) {
      std::vector<float> logits = only(id);
      out->next(logits);  // the line break is replaced: a string holds none
    }
  }
  std::vector<float> logits = only(tokenizer.encode("\"", false).at(0));
  while (!out->ended())
    out->next(logits);
  EXPECT_THAT(sink->heard().text(Channel::answer), testing::StartsWith("\"<tool_call>"));
  EXPECT_TRUE(sink->heard().calls.empty());

  request.budgets.max_answer_tokens = 3;
  request.schema = {{"type", "array"}};
  out = stream();
  for (int i = 0; i < 10 && !out->ended(); ++i) {
    logits = only(tokenizer.encode("[", false).at(0));
    out->next(logits);
  }
  EXPECT_EQ(sink->finish(), Finish::output_limit);
}

TEST_F(Control, AStopStringIsFoundHoweverItFallsIntoTokens) {
  starts_thinking = false;
  request.sampling.stop = {"\n\nEnd of \xC3\xA4ll.", "End. "};
  const std::string text = "a\n\nEnd of\n\nEnd of \xC3\xA4ll. more";
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      Ids all = tokenizer.encode(text.substr(0, i), false);
      for (const std::string& part : {text.substr(i, j - i), text.substr(j)}) {
        const Ids more = tokenizer.encode(part, false);
        all.insert(all.end(), more.begin(), more.end());
      }
      auto out = stream();
      for (const text::TokenId id : all) {
        std::vector<float> logits = only(id);
        if (!out->next(logits)) break;
      }
      EXPECT_EQ(sink->finish(), Finish::stop_string) << i << " and " << j;
      EXPECT_EQ(sink->heard().text(Channel::answer), "a\n\nEnd of") << i << " and " << j;
    }
  }
}

TEST_F(Control, WithIgnoreEosAnAnswerWithASchemaStillEndsWhereItIsWhole) {
  request.ignore_eos = true;
  request.schema = {{"type", "integer"}};
  const auto said = [&](const std::string& script) {
    auto out = stream();
    for (const text::TokenId id : ids(script)) {
      std::vector<float> logits = only(id);
      logits[static_cast<std::size_t>(ids("7").at(0))] += 40.0f;  // where `id` may not come
      if (!out->ended()) out->next(logits);
    }
    if (!out->ended()) out->end(Finish::cancelled);
    return sink->heard();
  };
  // Digits could follow, so only an end token ends it; one in the thinking is a token like others.
  Heard h = said("a <|im_end|> b\n</think>\n\n42<|im_end|>17");
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_EQ(h.text(Channel::answer), "42");
  EXPECT_EQ(h.text(Channel::reasoning), "a  b");
  // Before a digit it may not come, whatever the model wants.
  h = said("a\n</think>\n\n<|im_end|>");
  EXPECT_EQ(h.ended.at(0).finish, Finish::cancelled);
  EXPECT_EQ(h.text(Channel::answer), "7");
  // Nothing can follow.
  request.schema = {{"const", "x"}};
  h = said("a\n</think>\n\n\"x\"");
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_EQ(h.text(Channel::answer), "\"x\"");
  // Without a schema an end token ends nothing.
  request.schema = {};
  h = said("a\n</think>\n\n42<|im_end|>17");
  EXPECT_EQ(h.ended.at(0).finish, Finish::cancelled);
  EXPECT_EQ(h.text(Channel::answer), "4217");
}

TEST_F(Control, ASchemaThatCannotBeUsedFailsTheOutput) {
  request.schema = {{"type", "blob"}};
  auto out = stream();
  std::vector<float> logits = only(5);
  EXPECT_FALSE(out->next(logits));
  EXPECT_EQ(sink->heard().ended.at(0).error->param, "schema");
}

/// Has only some of another tokenizer's tokens, and no end token.
class Poorer final : public text::Tokenizer {
 public:
  Poorer(const text::Tokenizer& whole, std::function<bool(text::TokenId)> lacks)
      : whole_(whole), lacks_(std::move(lacks)) {}
  Ids encode(std::string_view t, bool special, std::size_t most) const override {
    return whole_.encode(t, special, most);
  }
  std::vector<text::SpecialMatch> find_special(std::string_view t) const override {
    return whole_.find_special(t);
  }
  std::string_view bytes_of(text::TokenId id) const override {
    return lacks_(id) ? std::string_view() : whole_.bytes_of(id);
  }
  std::string decode(std::span<const text::TokenId> all) const override {
    return whole_.decode(all);
  }
  text::TokenId special_id(std::string_view t) const override { return whole_.special_id(t); }
  bool is_control(text::TokenId id) const override { return whole_.is_control(id); }
  bool is_end(text::TokenId) const override { return false; }
  std::int32_t size() const override { return whole_.size(); }
  text::TokenId eos() const override { return -1; }

 private:
  const text::Tokenizer& whole_;
  const std::function<bool(text::TokenId)> lacks_;
};

TEST_F(Control, ASchemaThatTheVocabularyCannotWriteFailsTheOutput) {
  starts_thinking = false;
  const Poorer poorer(tokenizer, [&](text::TokenId id) {
    return tokenizer.bytes_of(id).find('\xF4') != std::string_view::npos;
  });
  request.schema = {{"const", "a\xF4\x80\x80\x80"}};
  OutputStream out(poorer, request, plan, starts_thinking, sink, std::chrono::steady_clock::now());
  for (int i = 0; i < 20 && !out.ended(); ++i) {
    std::vector<float> logits = noise(static_cast<std::size_t>(i), 1);
    EXPECT_GE(out.guess(logits, {}), 0);
    out.next(logits);
  }
  ASSERT_EQ(sink->finish(), Finish::failed);
  EXPECT_EQ(sink->heard().ended[0].error->param, "schema");
}

TEST_F(Control, AWholeTextEndsTheOutputWhereThereIsNoEndToken) {
  starts_thinking = false;
  const Poorer poorer(tokenizer, [](text::TokenId) { return false; });
  request.schema = {{"type", "integer"}};
  OutputStream out(poorer, request, plan, starts_thinking, sink, std::chrono::steady_clock::now());
  for (int i = 0; i < 100 && !out.ended(); ++i) {
    std::vector<float> logits = only(ids("7").at(0));
    out.next(logits);
  }
  EXPECT_EQ(sink->finish(), Finish::end_token);
  EXPECT_EQ(sink->heard().text(Channel::answer), std::string(18, '7'));
}

TEST_F(Control, LogprobsAreOfTheRawLawAndOfEveryToken) {
  starts_thinking = false;
  request.sampling.top_logprobs = 2;
  request.sampling.temperature = 0;
  request.sampling.logit_bias = {{7, 100.0f}};
  auto out = stream();
  std::vector<float> logits(static_cast<std::size_t>(tokenizer.size()), 0.0f);
  logits[9] = 2;
  const double all = std::log(static_cast<double>(logits.size()) - 1 + std::exp(2.0));
  EXPECT_EQ(out->next(logits), 7);
  out->end(Finish::cancelled);
  std::vector<TokenLogprobs> told;
  for (const Delta& d : sink->heard().deltas)
    told.insert(told.end(), d.logprobs.begin(), d.logprobs.end());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].id, 7);
  EXPECT_NEAR(told[0].logprob, -all, 1e-6);
  EXPECT_EQ(told[0].bytes, tokenizer.bytes_of(7));
  ASSERT_EQ(told[0].top.size(), 2u);
  EXPECT_EQ(told[0].top[0].first, 9);
  EXPECT_NEAR(told[0].top[0].second, 2 - all, 1e-6);
  EXPECT_EQ(told[0].top_bytes.at(0), tokenizer.bytes_of(9));
}

}  // namespace
}  // namespace ponder::run
