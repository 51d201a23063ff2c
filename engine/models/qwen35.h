#pragma once
// Qwen3.5-family hybrids: three gated-delta-net layers to one gated attention layer. What their
// dense and their mixture-of-experts files have in common.
#include "engine/models/metadata_reader.h"

namespace ponder::models {

/// All but the feed-forward part's numbers.
Result<DecoderConfig> read_hybrid(const MetadataReader& reader);

}  // namespace ponder::models
