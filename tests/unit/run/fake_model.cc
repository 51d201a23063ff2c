#include "tests/unit/run/fake_model.h"

#include <algorithm>

#include "engine/base/check.h"

namespace ponder::test {
namespace {

using models::KvPage;
using models::Snapshot;

constexpr std::size_t kPage = 64;
using Pages = std::vector<std::shared_ptr<const KvPage>>;

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  return x;
}
std::uint64_t fold(std::uint64_t hash, std::int32_t id) {
  return mix(hash * 31 + static_cast<std::uint32_t>(id) + 1);
}

/// A page is what its address says.
std::shared_ptr<const KvPage> new_page() {
  auto owner = std::make_shared<char>();
  return {owner, reinterpret_cast<const KvPage*>(owner.get())};
}

struct FakeSequence final : models::SequenceState {
  std::uint64_t hash = 1;
  std::int64_t count = 0;
  std::int32_t first = -1;
  std::vector<std::int32_t> on_trial;
  std::uint64_t draft_hash = 0;  ///< 0: draft() goes on from `hash`
  Pages pages;
  bool last_page_shared = false;

  std::int64_t length() const override { return count; }
  std::int64_t trial() const override { return static_cast<std::int64_t>(on_trial.size()); }
  void clear() override {
    hash = 1;
    count = 0;
    first = -1;
    on_trial.clear();
    pages.clear();
    draft_hash = 0;
  }
  void read(std::int32_t id) {
    if (count == 0) first = id;
    if (static_cast<std::size_t>(count) % kPage == 0) {
      pages.push_back(new_page());
    } else if (last_page_shared) {
      pages.back() = new_page();
    }
    last_page_shared = false;
    hash = fold(hash, id);
    ++count;
  }
};

struct FakeSnapshot final : Snapshot {
  std::uint64_t hash = 0;
  std::int64_t count = 0;
  std::int32_t first = -1;
  bool device = true;
  Pages held;

  std::int64_t length() const override { return count; }
  bool on_device() const override { return device; }
  std::uint64_t own_bytes() const override { return 2048; }
  std::span<const std::shared_ptr<const KvPage>> pages() const override { return held; }
};

/// A few likely tokens and a noise floor.
void fill(std::span<float> row, std::uint64_t hash, std::int32_t often) {
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = -20.0F + static_cast<float>(mix(hash + i) % 1000) / 1000.0F;
  for (std::uint64_t k = 0; k < 6; ++k)
    row[mix(hash ^ (k << 40)) % row.size()] = -static_cast<float>(mix(hash + k) % 256) / 64.0F;
  if (often >= 0 && mix(hash + 5) % 40 == 0) row[static_cast<std::size_t>(often)] = 2;
}

}  // namespace

std::unique_ptr<models::SequenceState> FakeModel::new_sequence() const {
  ++sequences;
  return std::make_unique<FakeSequence>();
}

Result<void> FakeModel::forward(std::span<const models::StepPart> parts, std::span<float> logits) {
  std::size_t wanted = 0;
  std::int64_t rows = 0;
  std::set<const models::SequenceState*> seen;
  for (const models::StepPart& part : parts) {
    CHECK(seen.insert(part.sequence).second);
    CHECK(part.sequence->trial() == 0);
    CHECK(!part.ids.empty());
    const auto n = static_cast<std::int64_t>(part.ids.size());
    CHECK(part.sequence->length() + n <= options.n_ctx);
    CHECK(part.logit_rows >= 0 && part.logit_rows <= n);
    CHECK(!part.trial || n <= models::kMaxTrialRows);
    for (const std::int32_t id : part.ids)
      CHECK(id >= 0 && id < options.vocab);
    wanted += static_cast<std::size_t>(part.logit_rows);
    rows += n;
    const auto& s = static_cast<const FakeSequence&>(*part.sequence);
    if (options.no_memory_for >= 0 && s.first == options.no_memory_for)
      return fail(ErrorCode::out_of_memory, "no memory");
  }
  CHECK(rows <= options.chunk);
  CHECK(logits.size() == wanted * static_cast<std::size_t>(options.vocab));
  seconds += options.step_s + options.row_s * static_cast<double>(rows);
  rows_read += rows;
  ++steps;
  most_parts = std::max(most_parts, parts.size());
  if (!parts.back().trial) slices.push_back(static_cast<std::int64_t>(parts.back().ids.size()));

  std::size_t row = 0;
  for (const models::StepPart& part : parts) {
    auto& s = static_cast<FakeSequence&>(*part.sequence);
    s.draft_hash = 0;
    std::uint64_t hash = s.hash;
    for (std::size_t i = 0; i < part.ids.size(); ++i) {
      if (part.trial)
        s.on_trial.push_back(part.ids[i]);
      else
        s.read(part.ids[i]);
      hash = fold(hash, part.ids[i]);
      if (options.fault == Fault::batch && parts.size() > 1) hash = s.hash = mix(hash);
      if (options.fault == Fault::small_chunk && part.ids.size() == 3) hash = s.hash = mix(hash);
      if (i + static_cast<std::size_t>(part.logit_rows) < part.ids.size()) continue;
      fill(logits.subspan(row++ * static_cast<std::size_t>(options.vocab),
                          static_cast<std::size_t>(options.vocab)),
           hash, options.often);
    }
  }
  return {};
}

void FakeModel::keep(models::SequenceState& sequence, std::int64_t rows) {
  auto& s = static_cast<FakeSequence&>(sequence);
  CHECK(rows >= 0 && rows <= s.trial());
  const std::vector<std::int32_t> ids = std::move(s.on_trial);
  s.on_trial.clear();
  for (std::int64_t i = 0; i < rows; ++i)
    s.read(ids[static_cast<std::size_t>(i)]);
  if (options.fault == Fault::keep && rows < static_cast<std::int64_t>(ids.size()))
    s.hash = fold(s.hash, ids[static_cast<std::size_t>(rows)]);
}

Result<void> FakeModel::draft(std::span<const models::DraftPart> parts, std::span<float> logits) {
  CHECK(options.drafts);
  seconds += options.draft_s;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& s = static_cast<FakeSequence&>(*parts[i].sequence);
    CHECK(s.trial() == 0);
    s.draft_hash = fold(s.draft_hash ? s.draft_hash : s.hash, parts[i].id);
    const bool agrees =
        static_cast<double>(mix(s.draft_hash + 77) % 1000) < options.draft_agrees * 1000;
    fill(logits.subspan(i * static_cast<std::size_t>(options.vocab),
                        static_cast<std::size_t>(options.vocab)),
         agrees ? s.draft_hash : mix(s.draft_hash), options.often);
  }
  return {};
}

Result<std::shared_ptr<const Snapshot>> FakeModel::save(models::SequenceState& sequence) {
  auto& s = static_cast<FakeSequence&>(sequence);
  CHECK(s.trial() == 0);
  auto snapshot = std::make_shared<FakeSnapshot>();
  snapshot->hash = s.hash;
  snapshot->count = s.count;
  snapshot->first = s.first;
  snapshot->held = s.pages;
  s.last_page_shared = true;
  if (options.fault == Fault::read_twice) s.hash = fold(s.hash, 0);
  return snapshot;
}

Result<std::shared_ptr<const Snapshot>> FakeModel::to_host(const Snapshot& snapshot) {
  auto copy = std::make_shared<FakeSnapshot>(static_cast<const FakeSnapshot&>(snapshot));
  copy->device = false;
  for (std::shared_ptr<const KvPage>& page : copy->held)
    page = new_page();
  if (options.fault == Fault::host) copy->hash = mix(copy->hash);
  return copy;
}

Result<void> FakeModel::restore(models::SequenceState& sequence, const Snapshot& snapshot) {
  auto& s = static_cast<FakeSequence&>(sequence);
  const auto& from = static_cast<const FakeSnapshot&>(snapshot);
  s.clear();
  s.hash = options.fault == Fault::restore ? mix(from.hash) : from.hash;
  s.count = from.count;
  s.first = from.first;
  s.pages = from.held;
  s.last_page_shared = true;
  return {};
}

}  // namespace ponder::test
