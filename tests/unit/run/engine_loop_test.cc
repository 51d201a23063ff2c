// The engine loop on a model that is a function of its tokens, step by step and without threads.
#include "engine/run/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/run/marks.h"
#include "engine/run/prompt.h"
#include "tests/unit/generator/pebble.h"
#include "tests/unit/run/fake_model.h"

namespace ponder::run {
namespace {

using test::FakeModel;
using test::FakeOptions;
using test::Heard;
using test::RecordingSink;
using Ids = std::vector<std::int32_t>;

/// n tokens of conversation c, none of them special.
Ids talk(std::uint32_t c, std::size_t n) {
  Ids ids;
  for (std::size_t i = 0; i < n; ++i)
    ids.push_back(static_cast<std::int32_t>(300 + (c * 7919 + i * i * 31 + i) % 3000));
  return ids;
}
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Ask {
  Ids prompt;
  std::int64_t tokens = 20;
  double temperature = 1.5;
  std::uint64_t seed = 7;
  Ids resume = {};
};

class Loop : public testing::Test {
 protected:
  void make(LoopOptions options = with_store(1 << 30, 1 << 30), FakeOptions fake = {}) {
    loop.reset();
    model = std::make_unique<FakeModel>(fake);
    told_memory.clear();
    started_then.clear();
    options.clock = [m = model.get()] { return m->seconds; };
    loop = std::make_unique<EngineLoop>(
        *model, tokenizer(), options, [this](const ContextMemory& memory) {
          told_memory.push_back(memory);
          started_then.push_back(latest && !latest->heard().started.empty());
        });
  }
  /// As many bytes as turns of so many tokens each may take together.
  std::uint64_t room_for(std::initializer_list<std::int64_t> tokens) {
    make(with_context(1));
    std::uint64_t bytes = 0;
    for (const std::int64_t n : tokens)
      bytes += loop->memory().need(n);
    return bytes;
  }
  static LoopOptions with_context(std::uint64_t bytes) {
    LoopOptions o = with_store(1 << 30, 1 << 30);
    o.context_bytes = bytes;
    return o;
  }
  static LoopOptions with_store(std::uint64_t device, std::uint64_t host) {
    LoopOptions o;
    o.store.device_bytes = device;
    o.store.host_bytes = host;
    o.store.page_bytes = 1024;
    return o;
  }
  static const text::Tokenizer& tokenizer() { return *test::pebble_vocabulary().tokenizer; }

  std::shared_ptr<RecordingSink> start(const Ask& ask) {
    auto sink = std::make_shared<RecordingSink>();
    latest = sink;
    RenderedPrompt prompt;
    prompt.ids = ask.prompt;
    GenerationRequest request;
    request.raw_prompt = "";
    request.ignore_eos = true;
    request.budgets.max_tokens = ask.tokens;
    request.sampling.temperature = ask.temperature;
    request.sampling.seed = ask.seed;
    PromptPlan plan =
        plan_prompt(test::pebble_vocabulary(), prompt, request, model->n_ctx(), {}).value();
    turn = std::make_shared<Turn>();
    turn->marks = plan_marks(tokenizer(), prompt);
    turn->ids = ask.prompt;
    turn->resume = ask.resume;
    turn->most_tokens = plan.total_budget;
    turn->ignore_eos = true;
    turn->output = std::make_unique<OutputStream>(tokenizer(), request, plan, false, sink,
                                                  std::chrono::steady_clock::now());
    loop->add(turn);
    return sink;
  }
  void finish() {
    while (!loop->idle())
      loop->step();
  }
  /// Steps until `sink` has heard so many tokens.
  void step_to(const std::shared_ptr<RecordingSink>& sink, std::size_t tokens) {
    while (sink->heard().tokens().size() < tokens)
      loop->step();
  }
  /// What it has said when it is cancelled after some tokens.
  Ids cut(const Ask& ask, std::size_t tokens) {
    const auto sink = start(ask);
    step_to(sink, tokens);
    turn->cancelled = true;
    finish();
    EXPECT_EQ(sink->finish(), Finish::cancelled);
    return sink->heard().tokens();
  }
  /// Runs to its end; the rows that were read before its first token, and what was heard.
  std::pair<std::int64_t, Heard> run_counted(const Ask& ask) {
    const std::int64_t before = model->rows_read;
    const auto sink = start(ask);
    step_to(sink, 1);
    const std::int64_t read = model->rows_read - before;
    finish();
    return {read, sink->heard()};
  }
  Heard run(const Ask& ask) {
    const auto sink = start(ask);
    finish();
    return sink->heard();
  }
  /// What it says alone, cold and without drafts.
  Ids plain(const Ask& ask) {
    FakeModel own(model->options);
    loop.swap(other);
    loop = std::make_unique<EngineLoop>(own, tokenizer(), LoopOptions{{}, 0, 8});
    const Heard heard = run(ask);
    loop.reset();
    loop.swap(other);
    return heard.tokens();
  }

  std::unique_ptr<FakeModel> model;
  std::unique_ptr<EngineLoop> loop, other;
  std::shared_ptr<Turn> turn;  // the last one started
  std::shared_ptr<RecordingSink> latest;
  std::vector<ContextMemory> told_memory;
  std::vector<bool> started_then;  // the last turn, when that was told
};

TEST_F(Loop, ATurnGoesOnWhereTheLastOneEnded) {
  make();
  const Ask first{talk(1, 300)};
  const Heard one = run(first);
  EXPECT_EQ(one.started.at(0).cache_path, "cold");
  EXPECT_EQ(one.started.at(0).miss_reason, miss::cold);
  EXPECT_EQ(one.started.at(0).cached_tokens, 0);
  EXPECT_EQ(one.tokens(), plain(first));
  const Ask second{first.prompt + one.tokens() + talk(2, 30)};
  const std::int64_t before = model->rows_read;
  const Heard two = run(second);
  EXPECT_EQ(two.started.at(0).cache_path, "device");
  EXPECT_EQ(two.started.at(0).cached_tokens, 319);  // the last token was chosen, but not read
  EXPECT_EQ(two.ended.at(0).usage.cached_tokens, 319);
  EXPECT_EQ(two.started.at(0).miss_reason, miss::none);
  EXPECT_EQ(two.started.at(0).diverged_at, std::nullopt);
  EXPECT_LT(model->rows_read - before, 31 + 150);
  EXPECT_EQ(two.tokens(), plain(second));
  EXPECT_EQ(two.prefill.back().done, 350);
  EXPECT_EQ(two.prefill.back().total, 350);
}

TEST_F(Loop, ATurnTakesTheMemoryOfTheLastOneAndNothingElseOfIt) {
  make(with_store(0, 0));
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Ask ask{talk(i, 300)};
    EXPECT_EQ(run(ask).tokens(), plain(ask));
  }
  EXPECT_EQ(model->sequences, 1);
  start({talk(4, 10)});
  start({talk(5, 10)});
  finish();
  EXPECT_EQ(model->sequences, 2);  // two at once
}

TEST_F(Loop, WhatIsDivergedFromIsSaid) {
  make();
  run({talk(1, 300)});
  const Heard h = run({talk(1, 200) + talk(2, 100)});
  EXPECT_EQ(h.started.at(0).diverged_at, 200);
  EXPECT_EQ(h.started.at(0).miss_reason, miss::short_prompt);
  make(with_store(0, 0));
  run({talk(1, 300)});
  EXPECT_EQ(run({talk(1, 301)}).started.at(0).miss_reason, miss::store_off);
}

TEST_F(Loop, WhereTwoPromptsPartAThirdGoesOn) {
  // One document, three questions: no mark of the first prompt lies at the document's end.
  make();
  const Ids document = talk(1, 500);
  run({document + talk(2, 120)});
  const Heard second = run({document + talk(3, 120)});
  EXPECT_EQ(second.started.at(0).cached_tokens, 0);
  const Ask ask{document + talk(4, 120)};
  const Heard third = run(ask);
  EXPECT_EQ(third.started.at(0).cached_tokens, 500);
  EXPECT_EQ(third.tokens(), plain(ask));
}

TEST_F(Loop, ManyAtOnceSayWhatEachSaysAloneWithAndWithoutDrafts) {
  for (const int spec : {kAdaptive, 0, 1, 3, 5}) {
    LoopOptions o = with_store(1 << 30, 0);
    o.spec = spec;
    o.most_running = 8;
    make(o);
    std::vector<Ask> asks;
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (std::uint32_t i = 0; i < 12; ++i) {
      asks.push_back({talk(i % 5, 20 + 90 * (i % 4)), 20 + 5 * i, i % 2 ? 1.5 : 0.0, i});
      sinks.push_back(start(asks.back()));
      if (i % 3 == 0) loop->step();
    }
    finish();
    EXPECT_EQ(model->most_parts, 8u);  // no more than that at once
    for (std::size_t i = 0; i < asks.size(); ++i) {
      EXPECT_EQ(sinks[i]->heard().tokens(), plain(asks[i])) << spec << " " << i;
      const Usage usage = sinks[i]->heard().ended.at(0).usage;
      EXPECT_EQ(sinks[i]->finish(), Finish::output_limit);
      EXPECT_LE(usage.accepted, usage.drafted);
      if (spec != kAdaptive) {  // which may find that it does not pay
        EXPECT_EQ(usage.drafted > 0, spec != 0) << spec << " " << i;
      }
    }
  }
}

TEST_F(Loop, ResumedTextIsTheUncutText) {
  for (const int spec : {0, 3}) {
    LoopOptions o = with_store(1 << 30, 0);
    o.spec = spec;
    make(o);
    Ask ask{talk(1, 150), 60};
    const Ids whole = plain(ask);
    ASSERT_EQ(whole.size(), 60u);
    for (const std::size_t cut : {1u, 17u, 59u}) {
      ask.resume = Ids(whole.begin(), whole.begin() + static_cast<long>(cut));
      const Heard h = run(ask);
      EXPECT_EQ(ask.resume + h.tokens(), whole) << cut;
      EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
      EXPECT_EQ(h.started.at(0).plan.prompt_tokens, 150);
      EXPECT_LE(h.started.at(0).cached_tokens, 150);
    }
    ask.resume = whole;  // nothing was left to say
    EXPECT_EQ(run(ask).tokens(), Ids{});
  }
}

TEST_F(Loop, ACancelledDecodeGoesOnFromItsStateInMemory) {
  for (const int spec : {0, 3}) {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 30, std::uint64_t{0}}) {
      LoopOptions o = with_store(bytes, 0);
      o.spec = spec;
      make(o);
      Ask ask{talk(1, 400), 60};
      const Ids whole = plain(ask);
      ask.resume = cut(ask, 25);
      const auto [read, h] = run_counted(ask);
      EXPECT_EQ(ask.resume + h.tokens(), whole);
      if (bytes > 0) {
        EXPECT_EQ(h.started.at(0).cache_path, "device");
        EXPECT_EQ(h.started.at(0).cached_tokens, 400);
        EXPECT_LE(read, 1 + spec) << spec;  // what was chosen last was not read
      } else {
        EXPECT_EQ(h.started.at(0).cache_path, "cold");
        EXPECT_GE(read, 425) << spec;
      }
    }
  }
}

TEST_F(Loop, OfWhatWasMadeAndNotToldLittleIsReadAgain) {
  for (const int spec : {0, 3}) {
    LoopOptions o = with_store(1 << 30, 0);
    o.spec = spec;
    make(o);
    Ask ask{talk(1, 400), 900};
    const Ids whole = plain(ask);
    ask.resume = cut(ask, 800);
    ask.resume.resize(790);  // what its daemon stored
    const auto [read, h] = run_counted(ask);
    EXPECT_LE(read, 256 + 16) << spec;
    EXPECT_EQ(ask.resume + h.tokens(), whole);
  }
}

TEST_F(Loop, WhileATurnWritesOnlyItsLatestStateIsKept) {
  make(with_store(1 << 30, 0));
  const auto sink = start({talk(1, 400), 900});
  step_to(sink, 300);
  const std::size_t states = loop->store().stats().device_states;
  step_to(sink, 800);
  EXPECT_EQ(loop->store().stats().device_states, states);
}

TEST_F(Loop, ACancelledPrefillIsNotLost) {
  make();
  const auto sink = start({talk(1, 900)});
  loop->step();
  loop->step();
  turn->cancelled = true;
  finish();
  EXPECT_EQ(sink->finish(), Finish::cancelled);
  const std::int64_t done = sink->heard().prefill.back().done;
  EXPECT_LT(done, 900);
  const Ask again{talk(1, 900)};
  const Heard h = run(again);
  EXPECT_EQ(h.started.at(0).cached_tokens, done);
  EXPECT_EQ(h.tokens(), plain(again));
}

TEST_F(Loop, CancelReachesThoseThatWaitAndThoseThatDecode) {
  LoopOptions o;
  o.most_running = 1;
  make(o);
  const auto running = start({talk(1, 10), 1000});
  const auto first = turn;
  for (int i = 0; i < 5; ++i)
    loop->step();
  const auto waiting = start({talk(2, 10)});
  turn->cancelled = true;
  EXPECT_EQ(loop->step().size(), 1u);
  EXPECT_EQ(waiting->finish(), Finish::cancelled);
  EXPECT_TRUE(waiting->heard().started.empty());
  first->cancelled = true;
  EXPECT_EQ(loop->step().size(), 1u);
  EXPECT_EQ(running->finish(), Finish::cancelled);
  EXPECT_TRUE(loop->idle());
}

TEST_F(Loop, ThoseThatDecodeAdvanceBesideALongPrompt) {
  LoopOptions o = with_store(0, 0);
  o.spec = 0;
  FakeOptions fake;
  fake.chunk = 64;
  make(o, fake);
  const auto early = start({talk(1, 10), 40});
  loop->step();
  const std::size_t before = early->heard().tokens().size();
  const auto late = start({talk(2, 1000), 5});
  for (int i = 0; i < 10; ++i)
    loop->step();
  EXPECT_EQ(early->heard().tokens().size(), before + 10);
  EXPECT_FALSE(late->heard().prefill.empty());
  finish();
  for (const std::int64_t rows : model->slices)
    EXPECT_LE(rows, 64);
}

TEST_F(Loop, PromptsAreReadInTurn) {
  FakeOptions fake;
  fake.chunk = 32;
  make(with_store(0, 0), fake);
  const auto a = start({talk(1, 400)}), b = start({talk(2, 400)});
  for (int i = 0; i < 8; ++i)
    loop->step();
  ASSERT_FALSE(a->heard().prefill.empty());
  ASSERT_FALSE(b->heard().prefill.empty());
  EXPECT_LE(std::abs(a->heard().prefill.back().done - b->heard().prefill.back().done), 64);
}

TEST_F(Loop, AStateFromHostMemoryIsAsGood) {
  make(with_store(6000, 1 << 30));  // one state, or two small ones
  const Ask a{talk(1, 200)}, b{talk(2, 200)};
  const Ids said = run(a).tokens();
  for (int i = 0; i < 3; ++i)
    run(b);
  const Ask next{a.prompt + said + talk(3, 5)};
  const Heard h = run(next);
  EXPECT_EQ(h.started.at(0).cache_path, "host");
  EXPECT_EQ(h.started.at(0).cached_tokens, 219);
  EXPECT_EQ(h.tokens(), plain(next));
  EXPECT_LE(loop->store().stats().device_bytes, 6000u);
}

TEST_F(Loop, WhatDoesNotFitBesideThoseThatRunIsNotStartedAndLaterRuns) {
  make(with_context(room_for({320, 320}) - 1));
  const Ask a{talk(1, 300)}, b{talk(2, 300)};
  const auto first = start(a);
  loop->step();
  const auto second = start(b);
  EXPECT_EQ(loop->step().size(), 1u);
  EXPECT_EQ(second->finish(), Finish::no_memory);
  EXPECT_TRUE(second->heard().started.empty());
  EXPECT_TRUE(second->heard().deltas.empty());
  const auto details = second->heard().ended.at(0).error->details;
  EXPECT_EQ(details.at("needed"), static_cast<std::int64_t>(loop->memory().need(320)));
  EXPECT_EQ(details.at("free"), static_cast<std::int64_t>(loop->memory().free));
  EXPECT_LT(details.at("free"), details.at("needed"));
  // A smaller one has room.
  const auto small = start({talk(3, 100)});
  finish();
  EXPECT_EQ(small->finish(), Finish::output_limit);
  EXPECT_EQ(first->heard().tokens(), plain(a));
  EXPECT_EQ(run(b).tokens(), plain(b));
}

TEST_F(Loop, TwoThatFitTogetherRunTogether) {
  make(with_context(room_for({320, 320})));
  start({talk(1, 300)});
  start({talk(2, 300)});
  finish();
  EXPECT_EQ(model->most_parts, 2u);
}

TEST_F(Loop, AloneATurnAlwaysStarts) {
  make(with_context(1));
  const Ask ask{talk(1, 300)};
  const Heard h = run(ask);
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.tokens(), plain(ask));
}

TEST_F(Loop, WhatIsFreeIsToldBeforeAStartAndAfterAnEnd) {
  const std::uint64_t budget = room_for({320, 320});
  make(with_context(budget));
  EXPECT_EQ(loop->memory().free, budget);
  start({talk(1, 300)});
  finish();
  ASSERT_EQ(told_memory.size(), 2u);
  EXPECT_EQ(started_then, (std::vector<bool>{false, true}));
  EXPECT_EQ(told_memory[0].free, budget - loop->memory().need(320));
  EXPECT_EQ(told_memory[1].free, budget);
}

TEST_F(Loop, SavedStatesGiveWayToWhatRuns) {
  const std::uint64_t budget = room_for({900, 900});
  FakeOptions fake;
  fake.chunk = 64;
  make(with_context(budget), fake);
  for (std::uint32_t i = 0; i < 20; ++i)
    run({talk(i, 300)});
  const std::uint64_t before = loop->store().stats().device_bytes;
  EXPECT_GT(before, budget / 3);
  EXPECT_LE(before, budget);
  start({talk(30, 600), 300});
  start({talk(31, 600), 300});
  while (!loop->idle()) {
    const std::uint64_t held = loop->memory().need(turn->ids.size());
    loop->step();
    if (turn->output->ended()) break;
    EXPECT_LE(loop->store().stats().device_bytes + held, budget);
  }
  EXPECT_LT(loop->store().stats().device_bytes, before);
  EXPECT_GT(loop->store().stats().host_states, 0u);  // moved, not lost
}

TEST_F(Loop, OneForWhichTheSystemHasNoMemoryGoesOnWhenTheOthersHaveEnded) {
  make();
  const Ask good{talk(1, 30), 40};
  Ask bad{talk(2, 30), 40};
  bad.prompt[0] = 299;
  const auto one = start(good);
  const auto broken = start(bad);
  for (int i = 0; i < 6; ++i)
    loop->step();
  model->options.no_memory_for = 299;
  finish();
  EXPECT_EQ(broken->finish(), Finish::no_memory);
  EXPECT_EQ(one->heard().tokens(), plain(good));
  model->options.no_memory_for = -1;
  const Ids so_far = broken->heard().tokens();
  bad.resume = so_far;
  const Ids rest = run(bad).tokens();
  bad.resume.clear();
  EXPECT_EQ(so_far + rest, plain(bad));
}

TEST_F(Loop, OneWithoutMemoryAloneFails) {
  make();
  Ask bad{talk(2, 30), 40};
  bad.prompt[0] = 299;
  const auto broken = start(bad);
  for (int i = 0; i < 6; ++i)
    loop->step();
  model->options.no_memory_for = 299;
  finish();
  EXPECT_EQ(broken->finish(), Finish::failed);
  EXPECT_EQ(broken->heard().ended.at(0).error->code, ErrorCode::out_of_memory);
}

TEST_F(Loop, ALongPromptIsSavedOnTheGrid) {
  FakeOptions fake;
  fake.n_ctx = 20000;
  make(with_store(1 << 30, 0), fake);
  const Ids prompt = talk(1, 10000);
  run({prompt});
  const Heard h = run({Ids(prompt.begin(), prompt.begin() + 9000) + talk(2, 100)});
  EXPECT_EQ(h.started.at(0).cached_tokens, 8192);
  EXPECT_EQ(h.started.at(0).diverged_at, 9000);
  EXPECT_EQ(h.started.at(0).miss_reason, miss::no_state);
}

}  // namespace
}  // namespace ponder::run
