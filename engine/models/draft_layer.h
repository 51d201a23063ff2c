#pragma once
// The multi-token-prediction layer, which guesses the token after the next one. With h_t the hidden
// state at position t after the model's last norm, and x the tokens:
//
//   r = eh_proj [rms(embed(x_{t+1}), enorm); rms(h_t, hnorm)]
//   r += attention(rms(r, attn_norm));  r += feed_forward(rms(r, feed_forward_norm))
//   m_t = rms(r, shared_head_norm);     logits for x_{t+2} = head m_t
//
// Entry t of its own key-value cache is made of h_t and x_{t+1}; it must hold all entries before
// one that guesses. Further guesses take m_t for h_{t+1}.
#include <vector>

#include "engine/models/layer_step.h"

namespace ponder::models {

/// Rows for the layer, of several sequences: entry `position` and the following ones of each.
struct DraftBatch {
  std::vector<RowRange> parts;
  std::vector<const float*> hidden;  ///< of each part [n, hidden]
  std::vector<std::int32_t> ids;     ///< of each row: the token after the hidden row's own
  std::int64_t rows = 0;

  void reserve(std::int64_t most);
  void clear();
  /// One row for each of `next_ids`.
  void add(DecoderSequence& sequence, std::int64_t position, const float* hidden_rows,
           std::span<const std::int32_t> next_ids);
  /// One row more of the last part.
  void append(std::int32_t next_id);
};

/// Writes the rows' keys and values. step.parts and step.rows are the batch's.
void draft_entries(const LayerStep& step, const DecoderWeights& weights, const DraftBatch& batch);
/// After it: m of the last row of each part, to scratch.norm [parts, hidden].
void draft_outputs(const LayerStep& step, const DecoderWeights& weights, const DraftBatch& batch);

}  // namespace ponder::models
