// LocalGenerator's two threads and its callers', on a model that is a small function of its tokens:
// what is said does not depend on who calls when. Made for TSan.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/run/local_generator.h"
#include "tests/unit/generator/pebble.h"
#include "tests/unit/run/fake_model.h"

namespace ponder::run {
namespace {

using test::ask;
using test::RecordingSink;

LoadedModel fake() {
  LoadedModel loaded;
  loaded.vocabulary = test::pebble_vocabulary();
  test::FakeOptions options;
  options.vocab = loaded.vocabulary.tokenizer->size();
  options.n_ctx = 1024;
  options.chunk = 64;
  loaded.model = std::make_unique<test::FakeModel>(options);
  loaded.info.id = "fake";
  loaded.info.n_ctx = options.n_ctx;
  return loaded;
}

GenerationRequest request(std::size_t n) {
  GenerationRequest r =
      ask("Question " + std::to_string(n % 5) + " of a few, " + std::string(n % 7 * 20, 'x'));
  r.ignore_eos = true;
  r.sampling.temperature = 1.5;
  r.sampling.seed = n;
  r.budgets.max_tokens = 30 + static_cast<std::int64_t>(n % 3) * 10;
  return r;
}

using Tokens = std::vector<std::int32_t>;

std::vector<Tokens> one_by_one(std::size_t requests) {
  LocalGenerator generator(fake());
  std::vector<Tokens> all;
  for (std::size_t n = 0; n < requests; ++n)
    all.push_back(test::run(generator, n + 1, request(n))->heard().tokens());
  return all;
}

TEST(LocalGenerator, ASchemaIsCompiledOncePerJob) {
  LocalGenerator generator(fake());
  GenerationRequest one = request(1);
  one.schema = {{"type", "integer"}};
  const std::uint64_t before = text::JsonGrammar::compiled();
  for (GenerationId id = 1; id < 4; ++id) {  // planned, started, and resumed again and again
    ASSERT_TRUE(test::plan(generator, one));
    test::run(generator, id, one);
  }
  EXPECT_EQ(text::JsonGrammar::compiled() - before, 1u);
  // Those used last are kept, refusals too.
  GenerationRequest other = one;
  for (std::size_t n = 0; n < Grammars::kMost; ++n) {
    other.schema = {{"const", n}};
    ASSERT_TRUE(test::plan(generator, other));
  }
  other.schema = {{"type", "blob"}};
  EXPECT_FALSE(test::plan(generator, other));
  EXPECT_EQ(text::JsonGrammar::compiled() - before, Grammars::kMost + 2);
  EXPECT_EQ(test::plan(generator, other).error().param, "schema");
  other.schema = {{"const", Grammars::kMost - 1}};
  ASSERT_TRUE(test::plan(generator, other));
  EXPECT_EQ(text::JsonGrammar::compiled() - before, Grammars::kMost + 2);
  ASSERT_TRUE(test::plan(generator, one));  // it had to go
  EXPECT_EQ(text::JsonGrammar::compiled() - before, Grammars::kMost + 3);
}

TEST(LocalThreads, ManyCallersGetTheTextsOfOneByOne) {
  constexpr std::size_t kCallers = 3, kEach = 6;
  const std::vector<Tokens> want = one_by_one(kCallers * kEach);
  LocalGenerator generator(fake());
  std::atomic<bool> done = false;
  std::thread asks_much([&] {
    while (!done) {
      EXPECT_EQ(generator.status().model.id, "fake");
      EXPECT_TRUE(test::plan(generator, request(1)));
      EXPECT_TRUE(test::tokenize(generator, "hello"));
      generator.cancel(999);  // nobody's
    }
  });
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (std::size_t i = 0; i < kEach; ++i) {
        const std::size_t n = caller * kEach + i;
        sinks.push_back(std::make_shared<RecordingSink>());
        generator.start(n + 1, request(n), sinks.back());
      }
      for (std::size_t i = 0; i < kEach; ++i) {
        ASSERT_TRUE(sinks[i]->wait_end(60));
        EXPECT_EQ(sinks[i]->heard().tokens(), want[caller * kEach + i]);
        EXPECT_EQ(sinks[i]->heard().after_end, 0);
      }
    });
  for (std::thread& caller : callers)
    caller.join();
  done = true;
  asks_much.join();
}

/// Cancels its own generation from the engine's thread when something is said.
class Impatient final : public OutputSink {
 public:
  explicit Impatient(Generator& generator, GenerationId id) : generator_(generator), id_(id) {}
  void on_started(const Started&) override {}
  void on_prefill(const PrefillProgress&) override {}
  void on_delta(const Delta&) override { generator_.cancel(id_); }
  void on_tool_call(const ToolCallMade&) override {}
  void on_ended(const Ended& e) override { heard.on_ended(e); }
  RecordingSink heard;

 private:
  Generator& generator_;
  const GenerationId id_;
};

TEST(LocalThreads, CancelAndAnswerNowReachWhatRunsFromAnyThread) {
  LocalGenerator generator(fake());
  const auto endless = [](std::size_t n) {
    GenerationRequest r = request(n);
    r.budgets.max_tokens = 900;
    return r;
  };
  std::vector<std::shared_ptr<Impatient>> impatient;
  std::vector<std::shared_ptr<RecordingSink>> cancelled, hurried;
  for (std::size_t n = 0; n < 4; ++n) {
    const GenerationId id = 10 * n;
    impatient.push_back(std::make_shared<Impatient>(generator, id + 1));
    generator.start(id + 1, endless(n), impatient.back());
    cancelled.push_back(std::make_shared<RecordingSink>());
    generator.start(id + 2, endless(n), cancelled.back());
    hurried.push_back(std::make_shared<RecordingSink>());
    generator.start(id + 3, endless(n), hurried.back());
  }
  std::thread other([&] {
    for (std::size_t n = 0; n < 4; ++n)
      generator.cancel(10 * n + 2);
  });
  for (std::size_t n = 0; n < 4; ++n)
    generator.answer_now(10 * n + 3);
  other.join();
  for (std::size_t n = 0; n < 4; ++n) {
    ASSERT_TRUE(impatient[n]->heard.wait_end(60));
    EXPECT_EQ(impatient[n]->heard.finish(), Finish::cancelled);
    ASSERT_TRUE(cancelled[n]->wait_end(60));
    EXPECT_EQ(cancelled[n]->finish(), Finish::cancelled);
    ASSERT_TRUE(hurried[n]->wait_end(60));
    EXPECT_NE(hurried[n]->finish(), Finish::cancelled);
  }
}

TEST(LocalThreads, TheEndAnswersWhatWasAskedAndCancelsWhatRuns) {
  for (std::size_t round = 0; round < 8; ++round) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    std::atomic<int> plans = 0;
    {
      LocalGenerator generator(fake());
      for (std::size_t n = 0; n < 4; ++n) {
        GenerationRequest r = request(n);
        r.budgets.max_tokens = 900;
        sinks.push_back(std::make_shared<RecordingSink>());
        generator.start(n + 1, r, sinks.back());
        generator.plan(r, [&](const Result<PromptPlan>& plan) {
          EXPECT_TRUE(plan);
          ++plans;
        });
      }
      if (round % 2 == 1) {
        EXPECT_TRUE(sinks[0]->wait([](const test::Heard& h) { return !h.deltas.empty(); }));
      }
    }
    EXPECT_EQ(plans, 4);
    for (const auto& sink : sinks) {
      ASSERT_EQ(sink->heard().ended.size(), 1u);
      EXPECT_EQ(sink->finish(), Finish::cancelled);
    }
  }
}

}  // namespace
}  // namespace ponder::run
