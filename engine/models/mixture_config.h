#pragma once
// The numbers of a mixture of experts, as the metadata of all architectures that have one state
// them.
#include "engine/models/metadata_reader.h"

namespace ponder::models {

/// Fills config.mixture and makes every layer's feed-forward part (multi-token-prediction blocks
/// included) a mixture. Routers other than a softmax over all experts with renormalised weights are
/// refused.
Result<void> read_mixture(const MetadataReader& reader, DecoderConfig& config);

}  // namespace ponder::models
