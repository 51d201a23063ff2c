#pragma once
// A plain run over a text: what every other way to the same position is compared with.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/models/decoder_snapshot.h"
#include "kernels/core/op_table.h"
#include "tests/support/tiny_models.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {

inline Ids random_ids(std::int32_t vocab, int n, std::uint32_t seed = 12345) {
  Ids out;
  for (int i = 0; i < n; ++i) {
    seed = seed * 1664525 + 1013904223;
    out.push_back(static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(vocab)));
  }
  return out;
}

inline std::string tiny_hybrid() {
  return ponder::testing::tiny_qwen35({.layers = 4,
                                       .interval = 2,
                                       .ffn = 160,
                                       .vocab = 131,
                                       .matrices = kernels::DType::Q8_0})
      .bytes();
}

inline bool same_state(const Snapshot& a, const Snapshot& b) {
  const auto x = dynamic_cast<const DecoderSnapshot&>(a).state(),
             y = dynamic_cast<const DecoderSnapshot&>(b).state();
  return a.length() == b.length() && x.size() == y.size() &&
         std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

inline std::shared_ptr<const Snapshot> save(Model& model, SequenceState& sequence) {
  auto out = model.save(sequence);
  CHECK_MSG(out.has_value(), out ? "" : out.error().message);
  return *out;
}

/// Reads `ids` without trial; their logits.
inline std::vector<float> read(Model& model, SequenceState& sequence,
                               std::span<const std::int32_t> ids) {
  std::vector<float> out(ids.size() * static_cast<std::size_t>(model.vocab()));
  run(model, sequence, ids, model.chunk(), out);
  return out;
}

/// Guesses after each of `ids`, one after the other.
inline std::vector<float> guess(Model& model, SequenceState& sequence,
                                std::span<const std::int32_t> ids) {
  const auto vocab = static_cast<std::size_t>(model.vocab());
  std::vector<float> out(ids.size() * vocab);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const DraftPart part{&sequence, ids[i]};
    const auto done = model.draft(std::span(&part, 1), std::span(out).subspan(i * vocab, vocab));
    CHECK_MSG(done.has_value(), done ? "" : done.error().message);
  }
  return out;
}

/// One token at a time, with a snapshot before each and the guesses there.
struct PlainRun {
  PlainRun(Model& model, const Ids& text) : ids(text) {
    const auto sequence = model.new_sequence();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      snapshots.push_back(save(model, *sequence));
      const auto row = read(model, *sequence, std::span(ids).subspan(i, 1));
      logits.insert(logits.end(), row.begin(), row.end());
    }
  }
  std::span<const float> rows(std::size_t first, std::size_t n) const {
    const std::size_t vocab = logits.size() / ids.size();
    return std::span(logits).subspan(first * vocab, n * vocab);
  }
  Ids ids;
  std::vector<float> logits;
  std::vector<std::shared_ptr<const Snapshot>> snapshots;  ///< [i]: i tokens read
};

}  // namespace ponder::models::testing
