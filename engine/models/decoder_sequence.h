#pragma once
// One sequence of a decoder: KV pages, recurrent state and convolution tails, what rows on trial
// leave behind, and the hidden rows that the draft layer has not read.
#include <memory>
#include <span>
#include <vector>

#include "engine/models/decoder.h"
#include "engine/models/kv_pages.h"
#include "engine/models/model.h"
#include "kernels/core/arena.h"

namespace ponder::models {

/// Sizes that all sequences of a model share.
struct SequenceLayout {
  const DecoderConfig* config = nullptr;
  KvLayout kv;
  std::int64_t n_ctx = 0;
  std::int64_t chunk = 0;
  bool drafts = false;

  std::int64_t recurrent_layers() const { return config->count(Mixer::gated_delta_net); }
  std::size_t recurrent_floats() const;  ///< of a layer
  std::size_t tail_floats() const;
  std::size_t log_floats() const;     ///< of a layer, for kMaxTrialRows
  std::uint64_t kept_bytes() const;   ///< states, tails, and what waits for the draft layer
  std::uint64_t trial_bytes() const;  ///< taken at the first trial
  /// Of a sequence, KV pages aside; trials are counted where the model drafts.
  std::uint64_t state_bytes() const;
};

/// What the rows on trial did to one recurrent layer: enough to do it again.
struct TrialLog {
  float* raw = nullptr;    ///< [kMaxTrialRows, conv_dim], the convolution's inputs
  float* kv = nullptr;     ///< [kMaxTrialRows, key_dim + value_dim], as gated_delta reads them
  float* decay = nullptr;  ///< [kMaxTrialRows, v_heads]
  float* beta = nullptr;   ///< [kMaxTrialRows, v_heads]
};

class DecoderSequence final : public SequenceState {
 public:
  /// `model` tells sequences and snapshots of other models apart.
  DecoderSequence(const SequenceLayout& layout, std::uint64_t model);

  std::int64_t length() const override { return length_; }
  std::int64_t trial() const override { return static_cast<std::int64_t>(trial_ids_.size()); }
  void clear() override;

  std::uint64_t model() const { return model_; }
  KvTable& kv() { return kv_; }
  /// Room for `n` more tokens (on trial): memory of the state at the first call, of the trial log
  /// at the first trial, KV pages. Nothing that can be read changes.
  Result<void> prepare(std::int64_t n, bool trial);

  /// Of recurrent layer number `index` (attention layers not counted), in the layout of
  /// kernels/ops/gated_delta.h and conv_silu.h.
  float* recurrent(std::int64_t index);  ///< [v_heads, dk / 16, dk, 16]
  float* conv_tail(std::int64_t index);  ///< [3, conv_dim]
  TrialLog trial_log(std::int64_t index);

  /// The rows of a step are part of the sequence, or on trial. Ends drafting.
  void advance(std::span<const std::int32_t> ids);
  void begin_trial(std::span<const std::int32_t> ids);
  void end_trial(std::int64_t rows);

  // The draft layer's entry t is made of hidden row t and token t + 1. Hidden rows from unread()
  // on are kept until they are in its cache.
  std::int64_t unread() const { return unread_; }
  std::int64_t unread_rows() const { return length_ - unread_; }
  /// Hidden rows unread().. [unread_rows, hidden]; the place of the next rows follows them.
  float* hidden_rows() { return hidden_.data(); }
  float* next_hidden_rows();  ///< where a step puts the hidden rows it computes
  float* trial_hidden_rows() { return trial_hidden_.data(); }
  /// Tokens unread().. one for each unread row.
  std::span<const std::int32_t> unread_ids() const { return unread_ids_; }
  /// The first `rows` unread rows are in the draft layer's cache.
  void drop_unread(std::int64_t rows);

  /// Guesses since the last step, and the draft layer's last output [hidden].
  std::int64_t drafted() const { return drafted_; }
  void set_drafted(std::int64_t count) { drafted_ = count; }
  float* draft_hidden() { return draft_hidden_.data(); }

  /// All recurrent states, then all tails. Empty before the first token.
  std::span<const float> state() const { return state_; }
  /// Becomes a sequence of `length` tokens with these pages, states, and unread hidden rows with
  /// their tokens. After an error it is what it was.
  Result<void> become(std::int64_t length, const KvPageList& pages, std::span<const float> state,
                      std::span<const float> hidden, std::span<const std::int32_t> ids);

 private:
  Result<void> take_memory();

  const SequenceLayout& layout_;
  std::uint64_t model_;
  std::int64_t length_ = 0;
  std::int64_t unread_ = 0;
  std::int64_t drafted_ = 0;
  KvTable kv_;
  kernels::Arena arena_, log_arena_;
  std::span<float> recurrent_, tails_, state_;  ///< state_: both
  std::span<float> hidden_, trial_hidden_, draft_hidden_, log_;
  std::vector<std::int32_t> unread_ids_, trial_ids_;
};

}  // namespace ponder::models
