#pragma once
// The shape of a qwen35 model as its file states it, checked: every number bounded and consistent
// with the others, so that sizes derived from it cannot overflow and no kernel meets a shape it
// cannot do.
#include <cstdint>
#include <vector>

#include "engine/artifact/gguf.h"
#include "engine/base/error.h"

namespace ponder::models {

struct Qwen35Config {
  std::int64_t layers = 0;  ///< without the multi-token-prediction blocks
  std::int64_t nextn = 0;   ///< multi-token-prediction blocks the file announces
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t n_ctx_train = 0;
  std::int64_t heads = 0;  ///< of an attention layer; a multiple of kv_heads
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rot = 0;  ///< rotary dimensions of a head
  double theta = 0;
  float eps = 0;
  std::int64_t k_heads = 0;     ///< of a gated-delta-net layer
  std::int64_t v_heads = 0;     ///< a multiple of k_heads; V head h uses K head h mod k_heads
  std::int64_t dk = 0;          ///< per head, keys and values alike
  bool tied = false;            ///< the head is the embedding
  std::vector<bool> recurrent;  ///< [layers]: gated delta net, else attention

  std::int64_t key_dim() const { return k_heads * dk; }
  std::int64_t value_dim() const { return v_heads * dk; }
  std::int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
  std::int64_t attention_layers() const;
  std::int64_t recurrent_layers() const { return layers - attention_layers(); }
};

/// Reads and checks the metadata. The error names the key at fault and its value.
Result<Qwen35Config> read_qwen35_config(const artifact::Gguf& file);

}  // namespace ponder::models
