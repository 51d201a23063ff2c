#pragma once
// Qwen3: attention with norms over each head's query and key. What its dense and its
// mixture-of-experts files have in common.
#include "engine/models/metadata_reader.h"

namespace ponder::models {

/// All but the feed-forward part's numbers.
Result<DecoderConfig> read_qwen3_attention(const MetadataReader& reader);

}  // namespace ponder::models
