#include "engine/run/lookup.h"

#include <algorithm>

namespace ponder::run {
namespace {

constexpr std::size_t kLeastSlots = 1024;
constexpr int kCandidates = 32;          // looked at before the best of them is taken
constexpr std::size_t kLongEnough = 64;  // a longer match says nothing more

}  // namespace

std::size_t Lookup::slot_of(const std::int32_t* key, std::size_t slots) {
  std::uint64_t h = 0;
  for (std::size_t i = 0; i < kKey; ++i)
    h = (h ^ static_cast<std::uint32_t>(key[i])) * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(h >> 32) & (slots - 1);
}

/// `end` is the place after the run's last token.
void Lookup::enter(std::span<const std::int32_t> sequence, std::size_t end) {
  if (before_.size() <= end) before_.resize(end + 1, 0);
  if (end < kKey) return;
  std::uint32_t& slot = latest_[slot_of(&sequence[end - kKey], latest_.size())];
  before_[end] = slot;
  slot = static_cast<std::uint32_t>(end);
}

void Lookup::rebuild(std::span<const std::int32_t> sequence, std::size_t slots) {
  const std::size_t entered = before_.empty() ? 0 : before_.size() - 1;
  latest_.assign(slots, 0);
  before_.clear();
  for (std::size_t end = 0; end <= entered; ++end)
    enter(sequence, end);
}

void Lookup::follow(std::span<const std::int32_t> sequence) {
  std::size_t slots = std::max(latest_.size(), kLeastSlots);
  while (slots < sequence.size())
    slots *= 2;
  if (slots != latest_.size()) rebuild(sequence, slots);
  for (std::size_t end = before_.size(); end <= sequence.size(); ++end)
    enter(sequence, end);
}

std::vector<std::int32_t> Lookup::drafts(std::span<const std::int32_t> sequence,
                                         std::size_t shortest, std::size_t most) const {
  const std::size_t size = sequence.size();
  shortest = std::max(shortest, kKey);
  if (size <= shortest || before_.size() <= size || most == 0) return {};
  std::size_t best = 0, best_length = 0;
  std::size_t at = before_[size];
  for (int i = 0; i < kCandidates && at > 0; ++i, at = before_[at]) {
    std::size_t length = 0;
    while (length < std::min(at, kLongEnough) &&
           sequence[at - 1 - length] == sequence[size - 1 - length])
      ++length;
    if (length > best_length) {
      best = at;
      best_length = length;
    }
  }
  if (best_length < shortest) return {};
  std::vector<std::int32_t> out;
  while (out.size() < most) {
    const std::size_t from = best + out.size();
    out.push_back(from < size ? sequence[from] : out[from - size]);
  }
  return out;
}

}  // namespace ponder::run
