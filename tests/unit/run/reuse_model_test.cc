// Reuse on the bundled model: warm text is cold text, and what was read before is not read again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/run/local_generator.h"
#include "engine/run/speculation.h"
#include "engine/run/state_store.h"
#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using test::Heard;
using test::RecordingSink;
using Ids = std::vector<std::int32_t>;

LoadedModel load(bool drafts = true) {
  EngineOptions options;
  options.model_path = test::pebble_file();
  options.load.n_ctx = 4096;
  options.load.drafts = drafts;
  return load_model(options).value();
}

GeneratorOptions options(std::optional<std::int64_t> mib, int spec = 0) {
  GeneratorOptions o;
  o.device_state_mib = mib;
  o.host_state_mib = 0;
  o.spec = spec;
  return o;
}

std::string document(int seed, int lines) {
  std::string text = "Inventory " + std::to_string(seed) + ".\n";
  for (int i = 0; i < lines; ++i)
    text += "Shelf " + std::to_string(i) + " holds " + std::to_string((seed * 37 + i * 53) % 90) +
            " boxes.\n";
  return text;
}

/// An agent's conversation. What it says is sampled; the seed makes it the same everywhere.
struct Talk {
  explicit Talk(int seed, bool keep = true) : keep_thoughts(keep) {
    request = test::ask(document(seed, 40) + "How many boxes does shelf 3 hold?");
    request.chat.messages.insert(request.chat.messages.begin(),
                                 {"system", "You look things up in inventory " +
                                                std::to_string(seed) + " and answer shortly."});
    request.sampling.temperature = 1.5;
    request.sampling.seed = static_cast<std::uint64_t>(seed);
    request.budgets.max_tokens = 40;
  }
  void hear(const Heard& h) {
    Message m{"assistant", h.text(Channel::answer)};
    if (keep_thoughts) m.reasoning_content = h.text(Channel::reasoning);
    request.chat.messages.push_back(std::move(m));
  }
  void say(std::string text) { request.chat.messages.push_back({"user", std::move(text)}); }

  GenerationRequest request;
  bool keep_thoughts;
};

class Reuse : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cold = new LocalGenerator(load(), options(0));
    warm = new LocalGenerator(load(), options(512));
  }
  static void TearDownTestSuite() {
    delete cold;
    delete warm;
  }

  static Heard run(LocalGenerator& generator, const GenerationRequest& request) {
    return test::run(generator, ++last_id, request, 120)->heard();
  }

  /// Runs a turn on both, warm first, and counts.
  void turn(Talk& talk) {
    const Ids prompt = render_prompt(test::pebble_vocabulary(), talk.request).value().ids;
    const Heard w = run(*warm, talk.request), c = run(*cold, talk.request);
    EXPECT_EQ(w.tokens(), c.tokens());
    EXPECT_EQ(c.started.at(0).miss_reason, miss::store_off);
    std::size_t before = 0;
    for (const Ids& other : read) {
      const auto end = std::mismatch(prompt.begin(), prompt.end(), other.begin(), other.end());
      before = std::max(before, static_cast<std::size_t>(end.first - prompt.begin()));
    }
    if (!read.empty()) {
      reusable += std::min(before, prompt.size() - 1);
      reused += static_cast<std::size_t>(w.started.at(0).cached_tokens);
    }
    Ids all = prompt;
    const Ids made = w.tokens();
    all.insert(all.end(), made.begin(), made.end());
    read.push_back(std::move(all));
    talk.hear(w);
  }
  void expect_reused() const {
    EXPECT_GE(static_cast<double>(reused), 0.99 * static_cast<double>(reusable))
        << reused << " of " << reusable;
    EXPECT_GT(reusable, 0u);
  }

  static inline LocalGenerator* cold = nullptr;
  static inline LocalGenerator* warm = nullptr;
  static inline GenerationId last_id = 0;
  std::vector<Ids> read;
  std::size_t reusable = 0, reused = 0;
};

TEST_F(Reuse, AGrowingConversation) {
  Talk talk(11);
  for (int i = 0; i < 4; ++i) {
    turn(talk);
    talk.say("And shelf " + std::to_string(i + 5) + "?");
  }
  expect_reused();
}

TEST_F(Reuse, TwoConversationsInTurn) {
  Talk a(21), b(22);
  for (int i = 0; i < 3; ++i) {
    for (Talk* talk : {&a, &b}) {
      turn(*talk);
      talk->say("And shelf " + std::to_string(i + 5) + "?");
    }
  }
  // The first turn of each is new, but for the few tokens all prompts begin with.
  expect_reused();
}

TEST_F(Reuse, EffortSwitchedBackAndForth) {
  Talk talk(31);
  for (int i = 0; i < 4; ++i) {
    talk.request.chat.effort = parse_effort(std::string_view(i % 2 ? "none" : "medium")).value();
    turn(talk);
    talk.say("And shelf " + std::to_string(i + 5) + "?");
  }
  expect_reused();
}

TEST_F(Reuse, ThinkingThatTheClientDrops) {
  Talk talk(41, false);
  for (int i = 0; i < 4; ++i) {
    turn(talk);
    talk.say("And shelf " + std::to_string(i + 5) + "?");
  }
  expect_reused();
}

TEST_F(Reuse, TheLastMessageEdited) {
  Talk talk(51);
  turn(talk);
  for (int i = 0; i < 3; ++i) {
    talk.say("And shelf " + std::to_string(i + 5) + "?");
    turn(talk);
    talk.request.chat.messages.resize(talk.request.chat.messages.size() - 2);
  }
  expect_reused();
}

TEST_F(Reuse, InABudgetForAFewStatesTheTextIsTheSame) {
  LocalGenerator small(load(), [] {
    GeneratorOptions o = options(12);
    o.host_state_mib = 12;
    return o;
  }());
  Talk a(61), b(62);
  for (int i = 0; i < 3; ++i) {
    for (Talk* talk : {&a, &b}) {
      const Heard s = run(small, talk->request), c = run(*cold, talk->request);
      EXPECT_EQ(s.tokens(), c.tokens());
      talk->hear(c);
      talk->say("And shelf " + std::to_string(i + 5) + "?");
    }
  }
}

std::vector<GenerationRequest> some_requests() {
  std::vector<GenerationRequest> all;
  for (test::Question& q : test::questions({"sort", "json", "code", "collatz"})) {
    q.request.sampling.temperature = 1.5;
    q.request.sampling.seed = all.size() + 5;
    q.request.budgets.max_tokens = 80;
    all.push_back(q.request);
  }
  return all;
}

TEST_F(Reuse, BatchedAndSpeculativeTextIsPlainText) {
  const auto all = some_requests();
  std::vector<Ids> plain;
  for (const GenerationRequest& r : all)
    plain.push_back(run(*cold, r).tokens());
  for (const int spec : {0, 1, 2, 3, 4, 5, kAdaptive}) {
    LocalGenerator generator(load(), options(64, spec));
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const GenerationRequest& r : all) {
      sinks.push_back(std::make_shared<RecordingSink>());
      generator.start(++last_id, r, sinks.back());
    }
    std::int64_t drafted = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(sinks[i]->wait_end(120));
      EXPECT_EQ(sinks[i]->heard().tokens(), plain[i]) << spec << " " << i;
      drafted += sinks[i]->heard().ended.at(0).usage.drafted;
    }
    if (spec == 0) {
      EXPECT_EQ(drafted, 0);
    }
    if (spec > 0) {
      EXPECT_GT(drafted, 0);
    }
  }
}

TEST_F(Reuse, ResumedTextIsUncutText) {
  for (GenerationRequest r : some_requests()) {
    const Ids whole = run(*cold, r).tokens();
    ASSERT_GT(whole.size(), 4u);
    r.resume.assign(whole.begin(), whole.begin() + static_cast<long>(whole.size() / 2));
    for (LocalGenerator* generator : {cold, warm}) {
      Ids all = r.resume;
      const Ids rest = run(*generator, r).tokens();
      all.insert(all.end(), rest.begin(), rest.end());
      EXPECT_EQ(all, whole);
    }
  }
}

}  // namespace
}  // namespace ponder::run
