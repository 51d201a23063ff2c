#include "engine/models/decoder_sequence.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/models/registry.h"

namespace ponder::models {
namespace {

using kernels::Arena;

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}
std::uint64_t padded(std::size_t floats) {
  return Arena::padded(floats * sizeof(float));
}
std::span<float> take(Arena& arena, std::size_t floats) {
  return floats == 0 ? std::span<float>() : arena.take_array<float>(floats);
}

}  // namespace

std::size_t SequenceLayout::recurrent_floats() const {
  return size(config->delta_net.v_heads * config->delta_net.dk * config->delta_net.dk);
}
std::size_t SequenceLayout::tail_floats() const {
  return size(3 * config->delta_net.conv_dim());
}
std::size_t SequenceLayout::log_floats() const {
  const DeltaNetConfig& d = config->delta_net;
  return size(kMaxTrialRows * (d.conv_dim() + d.key_dim() + d.value_dim() + 2 * d.v_heads));
}

std::uint64_t SequenceLayout::kept_bytes() const {
  const std::size_t layers = size(recurrent_layers());
  std::uint64_t out = padded(layers * recurrent_floats()) + padded(layers * tail_floats());
  if (drafts) out += padded(size((chunk + 1) * config->hidden)) + padded(size(config->hidden));
  return out;
}
std::uint64_t SequenceLayout::trial_bytes() const {
  std::uint64_t out = padded(size(recurrent_layers()) * log_floats());
  if (drafts) out += padded(size(kMaxTrialRows * config->hidden));
  return out;
}
std::uint64_t SequenceLayout::state_bytes() const {
  return arena_bytes(kept_bytes()) + (drafts ? arena_bytes(trial_bytes()) : 0);
}

DecoderSequence::DecoderSequence(const SequenceLayout& layout, std::uint64_t model)
    : layout_(layout), model_(model), kv_(layout.kv, layout.n_ctx) {
  trial_ids_.reserve(size(kMaxTrialRows));
  if (layout.drafts) unread_ids_.reserve(size(layout.chunk + 1));
}

void DecoderSequence::clear() {
  length_ = unread_ = drafted_ = 0;
  kv_.clear();
  std::fill(state_.begin(), state_.end(), 0.0f);
  unread_ids_.clear();
  trial_ids_.clear();
}

Result<void> DecoderSequence::take_memory() {
  if (arena_.size() != 0 || layout_.kept_bytes() == 0) return {};
  TRY(arena_, Arena::make(layout_.kept_bytes()));
  const std::size_t layers = size(layout_.recurrent_layers());
  recurrent_ = take(arena_, layers * layout_.recurrent_floats());
  tails_ = take(arena_, layers * layout_.tail_floats());
  // Between the two lies nothing but padding, so that they are saved in one piece.
  if (layers > 0)
    state_ = {recurrent_.data(),
              static_cast<std::size_t>(tails_.data() + tails_.size() - recurrent_.data())};
  if (layout_.drafts) {
    hidden_ = take(arena_, size((layout_.chunk + 1) * layout_.config->hidden));
    draft_hidden_ = take(arena_, size(layout_.config->hidden));
  }
  return {};
}

Result<void> DecoderSequence::prepare(std::int64_t n, bool trial) {
  TRY_VOID(take_memory());
  if (trial && log_arena_.size() == 0 && layout_.trial_bytes() > 0) {
    TRY(log_arena_, Arena::make(layout_.trial_bytes()));
    log_ = take(log_arena_, size(layout_.recurrent_layers()) * layout_.log_floats());
    if (layout_.drafts)
      trial_hidden_ = take(log_arena_, size(kMaxTrialRows * layout_.config->hidden));
  }
  return kv_.make_writable(length_, length_ + n);
}

float* DecoderSequence::recurrent(std::int64_t index) {
  CHECK(index >= 0 && index < layout_.recurrent_layers());
  return recurrent_.data() + size(index) * layout_.recurrent_floats();
}
float* DecoderSequence::conv_tail(std::int64_t index) {
  CHECK(index >= 0 && index < layout_.recurrent_layers());
  return tails_.data() + size(index) * layout_.tail_floats();
}

TrialLog DecoderSequence::trial_log(std::int64_t index) {
  CHECK(index >= 0 && index < layout_.recurrent_layers() && !log_.empty());
  const DeltaNetConfig& d = layout_.config->delta_net;
  TrialLog out;
  out.raw = log_.data() + size(index) * layout_.log_floats();
  out.kv = out.raw + kMaxTrialRows * d.conv_dim();
  out.decay = out.kv + kMaxTrialRows * (d.key_dim() + d.value_dim());
  out.beta = out.decay + kMaxTrialRows * d.v_heads;
  return out;
}

float* DecoderSequence::next_hidden_rows() {
  return hidden_.data() + unread_rows() * layout_.config->hidden;
}

void DecoderSequence::advance(std::span<const std::int32_t> ids) {
  length_ += static_cast<std::int64_t>(ids.size());
  drafted_ = 0;
  if (layout_.drafts) {
    CHECK(unread_rows() <= layout_.chunk + 1);
    unread_ids_.insert(unread_ids_.end(), ids.begin(), ids.end());
  } else {
    unread_ = length_;
  }
}

void DecoderSequence::begin_trial(std::span<const std::int32_t> ids) {
  trial_ids_.assign(ids.begin(), ids.end());
  drafted_ = 0;
}

void DecoderSequence::end_trial(std::int64_t rows) {
  if (layout_.drafts)
    std::copy_n(trial_hidden_.data(), rows * layout_.config->hidden, next_hidden_rows());
  advance(std::span(trial_ids_).first(size(rows)));
  trial_ids_.clear();
}

void DecoderSequence::drop_unread(std::int64_t rows) {
  CHECK(rows <= unread_rows());
  const std::int64_t width = layout_.config->hidden;
  std::copy(hidden_.data() + rows * width, hidden_.data() + unread_rows() * width, hidden_.data());
  unread_ids_.erase(unread_ids_.begin(), unread_ids_.begin() + static_cast<std::ptrdiff_t>(rows));
  unread_ += rows;
}

Result<void> DecoderSequence::become(std::int64_t length, const KvPageList& pages,
                                     std::span<const float> state, std::span<const float> hidden,
                                     std::span<const std::int32_t> ids) {
  if (length == 0) {
    clear();
    return {};
  }
  TRY_VOID(take_memory());
  CHECK(state.size() == state_.size() && hidden.size() <= hidden_.size());
  kv_.adopt(pages);
  std::copy(state.begin(), state.end(), state_.begin());
  std::copy(hidden.begin(), hidden.end(), hidden_.begin());
  unread_ids_.assign(ids.begin(), ids.end());
  trial_ids_.clear();
  length_ = length;
  unread_ = length - static_cast<std::int64_t>(ids.size());
  drafted_ = 0;
  return {};
}

}  // namespace ponder::models
