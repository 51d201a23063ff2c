// One text whatever the path, on the bundled model: every logit of every step, bit for bit, and
// every token, against a plain run (one prompt, default chunk, one row a step). Half of the prompts
// are sampled at temperature 1.5 with a fixed seed.
//
// 50 prompts of 40 tokens, every 16th cut of a 700-token conversation, 50 kills: 95 s of CPU time,
// a minute on two cores that are not busy. In full (300 tokens, every cut) with PONDER_SOAK=1, as
// scripts/soak runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <random>

#include "engine/run/load.h"
#include "engine/run/prompt.h"
#include "engine/run/sampled_choice.h"
#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kPrompts = 50, kKills = 50;

bool in_full() {
  const char* value = std::getenv("PONDER_SOAK");
  return value && *value == '1';
}
std::int64_t tokens_wanted() {
  return in_full() ? 300 : 40;
}

/// FNV-1a over the bits: -0 and 0, and every NaN, count as different.
std::uint64_t fingerprint(std::span<const float> logits) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const float x : logits) {
    h ^= std::bit_cast<std::uint32_t>(x);
    h *= 0x100000001b3u;
  }
  return h;
}

/// What a run made: its tokens, and a fingerprint of the logits that each was chosen from.
struct Trace {
  Ids ids;
  std::vector<std::uint64_t> logits;
  friend bool operator==(const Trace&, const Trace&) = default;
};

class RecordingChoice final : public Chooser {
 public:
  RecordingChoice(const text::Tokenizer& tokenizer, const sample::SamplerConfig& config,
                  std::size_t prompt, std::int64_t most)
      : choice_(tokenizer, config, static_cast<std::int64_t>(prompt), most, true) {}

  std::optional<std::int32_t> next(std::span<float> logits) override {
    if (choice_.ended()) return std::nullopt;
    trace.logits.push_back(fingerprint(logits));
    const auto id = choice_.next(logits);
    trace.ids.push_back(*id);
    return id;
  }
  std::int32_t guess(std::span<float> logits, std::span<const std::int32_t> drafts) const override {
    return choice_.guess(logits, drafts);
  }
  bool ended() const override { return choice_.ended(); }
  bool is_end(std::int32_t id) const override { return choice_.is_end(id); }
  std::int64_t room() const override { return choice_.room(); }
  /// An earlier run chose it.
  void replay(std::int32_t id) { choice_.replay(id); }

  Trace trace;

 private:
  SampledChoice choice_;
};

struct Prompt {
  Ids ids;
  sample::SamplerConfig sampling;
};

class Exactness : public testing::Test {
 protected:
  static LoadedModel load(int threads, bool drafts) {
    EngineOptions options;
    options.model_path = test::pebble_file();
    options.load.n_ctx = 4096;
    options.load.threads = threads;
    options.load.drafts = drafts;
    return load_model(options).value();
  }

  static void SetUpTestSuite() {
    loaded = new LoadedModel(load(2, true));
    std::ifstream in(std::string(PONDER_SOURCE_DIR) + "/models/pebble/eval.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);)
      lines.push_back(line);
    for (std::size_t i = 0; i < kPrompts; ++i) {
      const json::object row = parse_json_object(lines[i * 5 % lines.size()]).value();
      GenerationRequest request;
      request.chat = parse_chat_request(row).value();
      request.chat.effort = Effort{i % 3 == 2 ? Effort::Word::none : Effort::Word::medium, {}};
      Prompt prompt{render_prompt(loaded->vocabulary, request).value().ids, {}};
      prompt.sampling.temperature = i % 2 ? 1.5f : 0.0f;
      prompt.sampling.top_k = 0;
      prompt.sampling.top_p = 1.0f;
      prompt.sampling.seed = 7000 + i;
      prompts->push_back(std::move(prompt));
    }
    for (const Prompt& prompt : *prompts)
      plain->push_back(run(*loaded, prompt, loaded->model->chunk(), 0));
  }
  static void TearDownTestSuite() {
    delete loaded;
    loaded = nullptr;
  }

  static std::vector<float> row(const LoadedModel& m) {
    return std::vector<float>(static_cast<std::size_t>(m.model->vocab()));
  }

  /// Goes on from `logits` with everything `sequence` has read in `ids`.
  static void decode_on(const LoadedModel& m, models::SequenceState& sequence, Ids ids,
                        RecordingChoice& choice, int spec, std::span<float> logits) {
    DecodeStep step(*m.model);
    Drafting drafting(spec, m.model->drafts());
    Decoding decoding;
    decoding.sequence = &sequence;
    decoding.chooser = &choice;
    decoding.ids = &ids;
    decoding.drafting = &drafting;
    if (const auto first = choice.next(logits)) ids.push_back(*first);
    Decoding* const all[] = {&decoding};
    while (!choice.ended()) {
      step.run(*m.model, all, nullptr);
      ASSERT_FALSE(decoding.error) << decoding.error->message;
    }
  }

  static Trace run(const LoadedModel& m, const Prompt& prompt, std::int64_t chunk, int spec) {
    const auto sequence = m.model->new_sequence();
    std::vector<float> logits = row(m);
    EXPECT_TRUE(read_prompt(*m.model, *sequence, prompt.ids, chunk, logits));
    RecordingChoice choice(*m.vocabulary.tokenizer, prompt.sampling, prompt.ids.size(),
                           tokens_wanted());
    decode_on(m, *sequence, prompt.ids, choice, spec, logits);
    return choice.trace;
  }

  static void expect_plain(std::size_t i, const Trace& trace, const std::string& path) {
    EXPECT_EQ(trace.ids, (*plain)[i].ids) << path << ", prompt " << i;
    EXPECT_TRUE(trace.logits == (*plain)[i].logits) << path << ", prompt " << i << ": other logits";
  }

  /// A conversation of 700 tokens, out of the prompts and their answers.
  static Ids conversation() {
    Ids ids;
    for (std::size_t i = 0; ids.size() < 700; i = (i + 1) % prompts->size()) {
      ids.insert(ids.end(), (*prompts)[i].ids.begin(), (*prompts)[i].ids.end());
      ids.insert(ids.end(), (*plain)[i].ids.begin(), (*plain)[i].ids.end());
    }
    ids.resize(700);
    return ids;
  }

  static inline LoadedModel* loaded = nullptr;
  static inline std::vector<Prompt>* prompts = new std::vector<Prompt>;
  static inline std::vector<Trace>* plain = new std::vector<Trace>;
};

TEST_F(Exactness, AnyPrefillChunk) {
  for (const std::int64_t chunk : {1, 3, 64, 100, 512})
    for (std::size_t i = 0; i < prompts->size(); ++i)
      expect_plain(i, run(*loaded, (*prompts)[i], chunk, 0), "chunk " + std::to_string(chunk));
}

TEST_F(Exactness, OneThread) {
  const LoadedModel single = load(1, true);
  for (std::size_t i = 0; i < prompts->size(); ++i)
    expect_plain(i, run(single, (*prompts)[i], 512, 0), "one thread");
}

TEST_F(Exactness, WithoutTheDraftLayer) {
  const LoadedModel bare = load(2, false);
  for (std::size_t i = 0; i < prompts->size(); i += 5)
    expect_plain(i, run(bare, (*prompts)[i], 512, 0), "no draft layer");
}

TEST_F(Exactness, EverySpeculativeDepth) {
  for (const int spec : {1, 2, 3, 4, 5, kAdaptive})
    for (std::size_t i = 0; i < prompts->size(); ++i)
      expect_plain(i, run(*loaded, (*prompts)[i], 512, spec), "depth " + std::to_string(spec));
}

TEST_F(Exactness, ABatchOfFourWithStrangers) {
  // Each prompt beside three others that begin later and end earlier or later, drafting or not.
  models::Model& model = *loaded->model;
  for (std::size_t i = 0; i < prompts->size(); ++i) {
    std::vector<std::unique_ptr<models::SequenceState>> sequences;
    std::vector<Ids> ids;
    std::vector<std::unique_ptr<RecordingChoice>> choices;
    std::vector<Drafting> drafting;
    std::vector<Decoding> decodings(4);
    DecodeStep step(model);
    for (std::size_t k = 0; k < 4; ++k) {
      const Prompt& prompt = (*prompts)[(i + k) % prompts->size()];
      sequences.push_back(model.new_sequence());
      ids.push_back(prompt.ids);
      drafting.emplace_back(k % 2 ? 3 : 0, true);
      choices.push_back(std::make_unique<RecordingChoice>(
          *loaded->vocabulary.tokenizer, prompt.sampling, prompt.ids.size(), tokens_wanted()));
    }
    std::vector<std::size_t> prefilled(4, 0);
    std::vector<float> logits = row(*loaded);
    for (std::int64_t turn = 0;; ++turn) {
      std::vector<Decoding*> running;
      PromptSlice slice;
      std::size_t reading = 4;
      for (std::size_t k = 0; k < 4; ++k) {
        if (!choices[k]->trace.ids.empty()) {
          if (choices[k]->ended()) continue;
          decodings[k].sequence = sequences[k].get();
          decodings[k].chooser = choices[k].get();
          decodings[k].ids = &ids[k];
          decodings[k].drafting = &drafting[k];
          running.push_back(&decodings[k]);
        } else if (reading == 4 && turn >= static_cast<std::int64_t>(k)) {
          reading = k;
        }
      }
      if (reading < 4) {
        const std::size_t left = ids[reading].size() - prefilled[reading];
        const std::size_t n = std::min<std::size_t>(left, 17);
        slice.sequence = sequences[reading].get();
        slice.ids = std::span(ids[reading]).subspan(prefilled[reading], n);
        slice.wants_logits = n == left;
        prefilled[reading] += n;
      } else if (running.empty()) {
        break;
      }
      step.run(model, running, reading < 4 ? &slice : nullptr);
      if (reading < 4 && slice.wants_logits)
        ids[reading].push_back(*choices[reading]->next(slice.logits));
    }
    for (std::size_t k = 0; k < 4; ++k)
      expect_plain((i + k) % prompts->size(), choices[k]->trace, "batch of four");
  }
}

TEST_F(Exactness, RestoredAtEveryCut) {
  const Ids talk = conversation();
  models::Model& model = *loaded->model;
  std::vector<float> logits = row(*loaded);
  const Prompt whole{talk, (*prompts)[1].sampling};
  const auto go_on = [&](models::SequenceState& sequence, std::span<float> last) {
    RecordingChoice choice(*loaded->vocabulary.tokenizer, whole.sampling, talk.size(),
                           tokens_wanted());
    decode_on(*loaded, sequence, talk, choice, 2, last);
    return choice.trace;
  };
  const auto cold = model.new_sequence();
  ASSERT_TRUE(read_prompt(model, *cold, talk, 512, logits));
  const Trace want = go_on(*cold, logits);

  const auto reader = model.new_sequence();
  const std::size_t stride = in_full() ? 1 : 16;
  for (std::size_t cut = 1; cut < talk.size(); ++cut) {
    ASSERT_TRUE(model.forward(*reader, std::span(talk).subspan(cut - 1, 1), 0, {}));
    if (cut % stride != 0) continue;
    const auto snapshot = model.save(*reader);
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    const auto host = model.to_host(**snapshot);
    ASSERT_TRUE(host) << host.error().message;
    EXPECT_FALSE((*host)->on_device());
    for (const models::Snapshot* from : {snapshot->get(), host->get()}) {
      const auto sequence = model.new_sequence();
      ASSERT_TRUE(model.restore(*sequence, *from));
      ASSERT_TRUE(read_prompt(model, *sequence, std::span(talk).subspan(cut), 512, logits));
      EXPECT_EQ(go_on(*sequence, logits), want)
          << "cut at " << cut << (from->on_device() ? "" : " from host memory");
    }
  }
}

TEST_F(Exactness, KilledAndResumedAnywhere) {
  // What a new process does: reads prompt and stored tokens again, and goes on with the same seed.
  std::mt19937 draw(5);
  models::Model& model = *loaded->model;
  for (std::size_t kill = 0; kill < kKills; ++kill) {
    const std::size_t i = kill % prompts->size();
    const Prompt& prompt = (*prompts)[i];
    const Trace& want = (*plain)[i];
    const std::size_t cut = 1 + draw() % (want.ids.size() - 1);
    Ids read = prompt.ids;
    read.insert(read.end(), want.ids.begin(), want.ids.begin() + static_cast<std::ptrdiff_t>(cut));
    RecordingChoice choice(*loaded->vocabulary.tokenizer, prompt.sampling, prompt.ids.size(),
                           tokens_wanted());
    for (std::size_t k = 0; k < cut; ++k)
      choice.replay(want.ids[k]);
    const auto sequence = model.new_sequence();
    std::vector<float> logits = row(*loaded);
    ASSERT_TRUE(read_prompt(model, *sequence, read, 512, logits));
    decode_on(*loaded, *sequence, read, choice, kill % 2 ? 3 : 0, logits);
    EXPECT_TRUE(std::equal(choice.trace.ids.begin(), choice.trace.ids.end(),
                           want.ids.begin() + static_cast<std::ptrdiff_t>(cut), want.ids.end()));
    EXPECT_TRUE(std::equal(choice.trace.logits.begin(), choice.trace.logits.end(),
                           want.logits.begin() + static_cast<std::ptrdiff_t>(cut),
                           want.logits.end()))
        << "resumed at " << cut << " of prompt " << i;
  }
}

TEST_F(Exactness, TheComparisonSeesOneBit) {
  std::vector<float> logits = row(*loaded);
  const std::uint64_t before = fingerprint(logits);
  logits[3] = -0.0f;
  EXPECT_NE(fingerprint(logits), before);
  const LoadedModel half = [] {
    EngineOptions options;
    options.model_path = test::pebble_file();
    options.load.n_ctx = 4096;
    options.load.kv = models::KvType::f32;
    return load_model(options).value();
  }();
  // Another precision of the cache is another text somewhere: the traces must differ.
  EXPECT_FALSE(run(half, (*prompts)[1], 512, 0) == (*plain)[1]);
}

}  // namespace
}  // namespace ponder::run
