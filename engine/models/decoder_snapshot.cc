#include "engine/models/decoder_snapshot.h"

#include <algorithm>

namespace ponder::models {
namespace {

/// The same pages in the other memory.
Result<KvPageList> twins_of(const KvPageList& pages) {
  KvPageList out;
  out.reserve(pages.size());
  for (const auto& page : pages) {
    TRY(auto twin, twin_of(page));
    out.push_back(std::move(twin));
  }
  return out;
}

}  // namespace

std::uint64_t DecoderSnapshot::own_bytes() const {
  return sizeof(*this) + arena_.size() + ids_.size() * sizeof(std::int32_t) +
         pages_.size() * sizeof(pages_[0]);
}

Result<std::shared_ptr<DecoderSnapshot>> DecoderSnapshot::make(std::span<const float> state,
                                                               std::span<const float> unread) {
  auto out = std::make_shared<DecoderSnapshot>();
  TRY(out->arena_, kernels::Arena::make(kernels::Arena::padded(state.size_bytes()) +
                                            kernels::Arena::padded(unread.size_bytes()),
                                        kernels::Arena::Pages::small));
  if (!state.empty()) out->state_ = out->arena_.take_array<float>(state.size());
  if (!unread.empty()) out->unread_ = out->arena_.take_array<float>(unread.size());
  std::copy(state.begin(), state.end(), out->state_.begin());
  std::copy(unread.begin(), unread.end(), out->unread_.begin());
  return out;
}

Result<std::shared_ptr<const Snapshot>> DecoderSnapshot::take(DecoderSequence& sequence,
                                                              std::int64_t hidden) {
  const auto ids = sequence.unread_ids();
  std::span<const float> unread;
  if (!ids.empty())
    unread = {sequence.hidden_rows(), ids.size() * static_cast<std::size_t>(hidden)};
  TRY(const auto out,
      make(sequence.length() > 0 ? sequence.state() : std::span<const float>(), unread));
  out->model_ = sequence.model();
  out->length_ = sequence.length();
  out->pages_ = sequence.kv().share(sequence.length());
  out->ids_.assign(ids.begin(), ids.end());
  return std::shared_ptr<const Snapshot>(out);
}

Result<std::shared_ptr<const Snapshot>> DecoderSnapshot::to_host() const {
  TRY(const auto out, make(state_, unread_));
  if (on_device_) {
    TRY(out->pages_, twins_of(pages_));
  } else {
    out->pages_ = pages_;
  }
  out->model_ = model_;
  out->length_ = length_;
  out->on_device_ = false;
  out->ids_ = ids_;
  return std::shared_ptr<const Snapshot>(out);
}

Result<void> DecoderSnapshot::restore(DecoderSequence& sequence) const {
  if (on_device_) return sequence.become(length_, pages_, state_, unread_, ids_);
  TRY(const KvPageList pages, twins_of(pages_));
  return sequence.become(length_, pages, state_, unread_, ids_);
}

}  // namespace ponder::models
