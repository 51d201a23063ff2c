#pragma once
// A decoder's sequence at one position. Pages are shared with the sequence and with other
// snapshots; the recurrent state and the unread hidden row are copies of its own.
#include "engine/models/decoder_sequence.h"

namespace ponder::models {

class DecoderSnapshot final : public Snapshot {
 public:
  std::int64_t length() const override { return length_; }
  bool on_device() const override { return on_device_; }
  std::uint64_t own_bytes() const override;
  std::span<const std::shared_ptr<const KvPage>> pages() const override { return pages_; }
  std::uint64_t model() const { return model_; }
  /// All recurrent states, then all convolution tails.
  std::span<const float> state() const { return state_; }

  /// The sequence as it is; no rows may be on trial.
  static Result<std::shared_ptr<const Snapshot>> take(DecoderSequence& sequence,
                                                      std::int64_t hidden);
  Result<std::shared_ptr<const Snapshot>> to_host() const;
  Result<void> restore(DecoderSequence& sequence) const;

 private:
  static Result<std::shared_ptr<DecoderSnapshot>> make(std::span<const float> state,
                                                       std::span<const float> unread);
  std::uint64_t model_ = 0;
  std::int64_t length_ = 0;
  bool on_device_ = true;
  KvPageList pages_;
  kernels::Arena arena_;
  std::span<float> state_, unread_;
  std::vector<std::int32_t> ids_;  ///< tokens of the unread rows
};

}  // namespace ponder::models
