// `ponder-engine bench MODEL`: speed of prefill and decode, and how near decode comes to what
// this machine can read.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "engine/base/json.h"
#include "engine/run/sampled_choice.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"
#include "engine/worker/read_bandwidth.h"

namespace ponder::worker {
namespace {

using Clock = std::chrono::steady_clock;

/// Ids that look like nothing: speed does not depend on them, only that they are not all one.
std::vector<text::TokenId> some_ids(std::int64_t n, std::int32_t vocab) {
  std::vector<text::TokenId> ids;
  std::uint64_t x = 88172645463325252u;  // xorshift64 with a fixed start
  for (std::int64_t i = 0; i < n; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    ids.push_back(static_cast<text::TokenId>(x % static_cast<std::uint64_t>(vocab)));
  }
  return ids;
}

/// What a text begins with that is drafted for, in the form that most models of the family know.
constexpr std::string_view kStart =
    "<|im_start|>user\nWhich of these numbers is the largest, and why: 312, 97, 4051, 88, 2300?"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n";

struct Test {
  bool prefill = true;
  std::int64_t n = 0;
  std::int64_t depth = 0;
};

class Bench {
 public:
  /// `tokenizer` may be null where nothing is drafted.
  Bench(const BenchArguments& arguments, models::Model& model, const text::Tokenizer* tokenizer,
        double read_gb_per_s)
      : arguments_(arguments),
        model_(model),
        tokenizer_(tokenizer),
        read_gb_per_s_(read_gb_per_s),
        start_(tokenizer ? tokenizer->encode(kStart, true) : std::vector<text::TokenId>()),
        logits_(static_cast<std::size_t>(model.vocab())) {}

  Result<void> run(const Test& test) {
    const std::int64_t start = drafts(test) ? static_cast<std::int64_t>(start_.size()) : 0;
    if (test.n + std::max(test.depth, start) > model_.n_ctx())
      return fail(ErrorCode::context_length_exceeded,
                  fmt::format("a test of {} tokens at depth {} does not fit the window of {}",
                              test.n, test.depth, model_.n_ctx()),
                  "give a larger --ctx");
    const std::unique_ptr<models::SequenceState> sequence = model_.new_sequence();
    TRY_VOID(read_depth(*sequence, drafts(test) ? 0 : test.depth));
    std::vector<double> speeds;
    passes_ = tokens_ = 0;
    for (int i = -1; i < arguments_.repetitions; ++i) {  // the first is for warming up
      TRY(const double speed, once(*sequence, test));
      if (i >= 0) speeds.push_back(speed);
    }
    std::sort(speeds.begin(), speeds.end());
    return write_stdout(to_json(row(test, speeds)) + "\n");
  }

 private:
  bool drafts(const Test& test) const { return !test.prefill && arguments_.spec != 0; }

  /// What stands before a test is read once for all its repetitions.
  Result<void> read_depth(models::SequenceState& sequence, std::int64_t depth) {
    at_depth_.reset();
    if (depth == 0) return {};
    const std::vector<text::TokenId> ids = some_ids(depth, model_.vocab());
    TRY_VOID(run::read_prompt(model_, sequence, ids, model_.chunk(), logits_));
    TRY(at_depth_, model_.save(sequence));
    return {};
  }

  Result<double> once(models::SequenceState& sequence, const Test& test) {
    sequence.clear();
    if (drafts(test)) return once_with_drafts(sequence, test);
    if (at_depth_) TRY_VOID(model_.restore(sequence, *at_depth_));
    const std::vector<text::TokenId> ids = some_ids(test.depth + test.n, model_.vocab());
    const auto timed = std::span(ids).subspan(static_cast<std::size_t>(test.depth));
    const Clock::time_point began = Clock::now();
    if (test.prefill) {
      TRY_VOID(run::read_prompt(model_, sequence, timed, model_.chunk(), logits_));
    } else {
      for (std::size_t i = 0; i < timed.size(); ++i)  // with logits each time, as decode needs them
        TRY_VOID(model_.forward(sequence, timed.subspan(i, 1), 1, logits_));
    }
    const double s = std::chrono::duration<double>(Clock::now() - began).count();
    // Weights are read once a forward pass: for each token of decode, once a chunk of prefill.
    passes_ += test.prefill ? (test.n + model_.chunk() - 1) / model_.chunk() : test.n;
    tokens_ += test.n;
    return static_cast<double>(test.n) / s;
  }

  /// Drafts are right or wrong by what the text is, so it has to be the model's own.
  Result<double> once_with_drafts(models::SequenceState& sequence, const Test& test) {
    const std::int64_t n = test.n;
    const std::int64_t before = test.depth - static_cast<std::int64_t>(start_.size());
    std::vector<text::TokenId> ids = some_ids(before, model_.vocab());
    ids.insert(ids.end(), start_.begin(), start_.end());
    sample::SamplerConfig greedy;
    greedy.temperature = 0;
    run::SampledChoice choice(*tokenizer_, greedy, static_cast<std::int64_t>(ids.size()), n, true);
    TRY_VOID(run::read_prompt(model_, sequence, ids, model_.chunk(), logits_));
    run::DecodeStep step(model_);
    const Clock::time_point began = Clock::now();
    TRY(const run::Drafts made,
        run::decode(model_, step, sequence, ids, choice, arguments_.spec, logits_));
    const double s = std::chrono::duration<double>(Clock::now() - began).count();
    passes_ += n - made.accepted;
    tokens_ += n;
    return static_cast<double>(n) / s;
  }

  json::object row(const Test& test, const std::vector<double>& sorted) const {
    const std::size_t n = sorted.size();
    const double median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    const double bytes_per_token = static_cast<double>(model_.weight_bytes()) *
                                   static_cast<double>(passes_) / static_cast<double>(tokens_);
    return {{"test", fmt::format("{}{}", test.prefill ? "pp" : "tg", test.n)},
            {"n", test.n},
            {"depth", test.depth},
            {"threads", model_.threads()},
            {"device", model_.device()},
            {"kv", arguments_.model.kv},
            {"spec", drafts(test) ? arguments_.spec : 0},
            {"reps", arguments_.repetitions},
            {"tokens_per_s", {{"median", median}, {"min", sorted.front()}, {"max", sorted.back()}}},
            {"bytes_per_token", static_cast<std::int64_t>(bytes_per_token)},
            {"read_gb_per_s", read_gb_per_s_},
            {"read_fraction", bytes_per_token * median / 1e9 / read_gb_per_s_}};
  }

  const BenchArguments& arguments_;
  models::Model& model_;
  const text::Tokenizer* const tokenizer_;
  const double read_gb_per_s_;
  const std::vector<text::TokenId> start_;
  std::vector<float> logits_;
  std::shared_ptr<const models::Snapshot> at_depth_;  ///< null: at no depth
  std::int64_t passes_ = 0, tokens_ = 0;              ///< of the test that runs
};

}  // namespace

Result<int> run_bench(const BenchArguments& arguments) {
  ModelArguments with_drafts = arguments.model;
  with_drafts.drafts = arguments.spec != 0;
  run::LoadedModel loaded;
  if (arguments.spec != 0) {
    TRY(loaded, load(with_drafts));
  } else {
    TRY(loaded.model, load_weights(with_drafts));
  }
  models::Model& model = *loaded.model;
  TRY_VOID(check_spec(arguments.spec, model));
  std::vector<Test> tests;
  for (const std::int64_t depth : arguments.depths) {
    for (const std::int64_t n : arguments.prompts)
      if (n > 0) tests.push_back({true, n, depth});
    for (const std::int64_t n : arguments.outputs)
      if (n > 0) tests.push_back({false, n, depth});
  }
  // Past every cache a larger buffer reads no differently, and the weights are in memory too.
  const std::uint64_t buffer = std::min<std::uint64_t>(model.weight_bytes(), 4ull << 30);
  Bench bench(arguments, model, loaded.vocabulary.tokenizer.get(),
              measure_read_gb_per_s(buffer, model.threads()));
  for (const Test& test : tests)
    TRY_VOID(bench.run(test));
  return kExitDone;
}

}  // namespace ponder::worker
