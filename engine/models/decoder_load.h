#pragma once
// From a file and its configuration to a model: checks, sizes, and the loading itself.
#include <memory>
#include <string>
#include <vector>

#include "engine/models/decoder_sequence.h"
#include "engine/models/layer_step.h"
#include "engine/models/model.h"

namespace ponder::models {

/// A configuration with what a load decided: options resolved, and whether drafts can be had.
struct DecoderPlan {
  DecoderConfig config;
  LoadOptions options;  ///< drafts only where the file holds the layer
  bool with_nextn = false;

  KvLayout kv_layout() const;
  /// Of the main model and, with drafts, its draft layer.
  std::vector<WeightSlot> slots(DecoderWeights& weights) const {
    return decoder_slots(config, weights, with_nextn, options.drafts);
  }
};

/// Each a sentence: tensors that are missing, misshapen or of a type that cannot be computed.
std::vector<std::string> check_decoder(const artifact::Gguf& file, const DecoderConfig& config);
Result<DecoderPlan> plan_decoder(const artifact::Gguf& file, DecoderConfig config,
                                 const LoadOptions& options);
MemoryNeed decoder_memory_need(const artifact::Gguf& file, const DecoderPlan& plan);
/// Weight bytes that one decode step reads: of the embedding one row, of the experts those used.
std::uint64_t decoder_step_bytes(const artifact::Gguf& file, const DecoderPlan& plan);

/// The model on this machine's CPU (decoder.cc).
Result<std::unique_ptr<Model>> load_decoder(const artifact::Gguf& file, DecoderPlan plan);

}  // namespace ponder::models
