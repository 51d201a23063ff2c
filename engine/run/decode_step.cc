#include "engine/run/decode_step.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "engine/base/check.h"

namespace ponder::run {
namespace {

/// Logits of a large vocabulary are a megabyte a row; more rows than this are not drafted for.
constexpr std::int64_t kMostDraftRows = 32;

Error no_memory() {
  return {ErrorCode::out_of_memory, "there is not enough memory for this conversation",
          "use a smaller --ctx, or close other programs"};
}

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

DecodeStep::DecodeStep(const models::Model& model, std::function<bool()> out_of_memory,
                       StepClock clock)
    : vocab_(static_cast<std::size_t>(model.vocab())),
      chunk_(model.chunk()),
      out_of_memory_(std::move(out_of_memory)),
      clock_(std::move(clock)) {}

std::int64_t DecodeStep::slice_room(std::size_t decoding) const {
  return chunk_ - static_cast<std::int64_t>(decoding);
}

std::span<float> DecodeStep::row(std::size_t index) {
  return std::span(logits_).subspan(index * vocab_, vocab_);
}

bool DecodeStep::make_room(std::size_t rows) {
  if (logits_.size() >= rows * vocab_) return true;
  for (bool again = false;; again = true) {
    try {
      logits_.resize(rows * vocab_);
      return true;
    } catch (const std::bad_alloc&) {
      if (again || !out_of_memory_ || !out_of_memory_()) return false;
    }
  }
}

void DecodeStep::run(models::Model& model, std::span<Decoding* const> decoding,
                     PromptSlice* slice) {
  const auto slice_rows = slice ? static_cast<std::int64_t>(slice->ids.size()) : 0;
  const std::int64_t rows_left = chunk_ - slice_rows - static_cast<std::int64_t>(decoding.size());
  CHECK(rows_left >= 0);
  plan(decoding, rows_left);
  draft(model, decoding);

  const double began = clock_();
  const bool together = forward(model, decoding, slice);
  std::size_t at = 0;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    if (!decoding[i]->error) take(model, *decoding[i], i, at);
    at += rows_[i].size();
    rows += static_cast<std::int64_t>(rows_[i].size());
  }
  if (slice && slice->wants_logits && !slice->error) slice->logits = row(at);
  if (!slice && together) cost_.step_took(rows, clock_() - began);
}

void DecodeStep::plan(std::span<Decoding* const> decoding, std::int64_t rows_left) {
  rows_.resize(decoding.size());
  looked_up_.assign(decoding.size(), false);
  depth_.assign(decoding.size(), 0);
  Company company;
  company.rows = company.tokens = static_cast<std::int64_t>(decoding.size()) - 1;
  rows_left = std::min(rows_left, kMostDraftRows);
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    Decoding& d = *decoding[i];
    CHECK(static_cast<std::int64_t>(d.ids->size()) == d.sequence->length() + 1);
    rows_[i] = {d.ids->back()};
    const std::int64_t most =
        std::min({rows_left, d.chooser->room() - 1, models::kMaxTrialRows - 1});
    if (!d.drafting || most <= 0) continue;
    Drafting::Plan plan = d.drafting->plan(cost_, company, most, *d.ids);
    looked_up_[i] = !plan.looked_up.empty();
    depth_[i] = plan.depth;
    for (const std::int32_t id : plan.looked_up) {
      if (d.chooser->is_end(id)) break;
      rows_[i].push_back(id);
    }
    const auto added =
        std::max<std::int64_t>(static_cast<std::int64_t>(rows_[i].size()) - 1, depth_[i]);
    rows_left -= added;
    company.rows += added;
  }
}

void DecodeStep::draft(models::Model& model, std::span<Decoding* const> decoding) {
  std::vector<models::DraftPart> parts;
  std::vector<std::size_t> who;
  for (int level = 0; level < kDeepestDraft; ++level) {
    parts.clear();
    who.clear();
    for (std::size_t i = 0; i < decoding.size(); ++i) {
      if (depth_[i] <= level) continue;
      parts.push_back({decoding[i]->sequence, rows_[i].back()});
      who.push_back(i);
    }
    if (parts.empty()) return;
    const double began = clock_();
    Result<void> drafted = fail(no_memory());
    if (make_room(parts.size()))
      drafted = model.draft(parts, std::span(logits_).first(parts.size() * vocab_));
    for (std::size_t p = 0; p < who.size(); ++p) {
      const std::size_t i = who[p];
      if (!drafted) {  // no reason to fail: it would only have been faster
        decoding[i]->drafting->give_up_layer();
        depth_[i] = level;
        continue;
      }
      const std::int32_t id = decoding[i]->chooser->guess(row(p), std::span(rows_[i]).subspan(1));
      if (decoding[i]->chooser->is_end(id))
        depth_[i] = level;
      else
        rows_[i].push_back(id);
    }
    if (drafted) cost_.draft_took(clock_() - began);
  }
}

Result<void> DecodeStep::forward_once(models::Model& model, std::span<const models::StepPart> parts,
                                      std::span<float> logits) const {
  for (bool again = false;; again = true) {
    Result<void> done;
    try {
      done = model.forward(parts, logits);
    } catch (const std::bad_alloc&) {
      done = fail(no_memory());
    }
    const bool short_of_memory = !done && done.error().code == ErrorCode::out_of_memory;
    if (!short_of_memory || again || !out_of_memory_ || !out_of_memory_()) return done;
  }
}

/// All parts in one pass. Where that fails, each alone, so that only those end that cannot go on;
/// false then.
bool DecodeStep::forward(models::Model& model, std::span<Decoding* const> decoding,
                         PromptSlice* slice) {
  std::vector<models::StepPart> parts;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    const auto n = static_cast<std::int64_t>(rows_[i].size());
    parts.push_back({decoding[i]->sequence, rows_[i], n, n > 1});
    rows += rows_[i].size();
  }
  if (slice) {
    parts.push_back({slice->sequence, slice->ids, slice->wants_logits ? 1 : 0, false});
    rows += slice->wants_logits ? 1 : 0;
  }
  if (!make_room(rows)) {
    for (Decoding* d : decoding)
      d->error = no_memory();
    if (slice) slice->error = no_memory();
    return false;
  }
  const std::span<float> logits = std::span(logits_).first(rows * vocab_);
  const Result<void> together = forward_once(model, parts, logits);
  if (together) return true;

  std::size_t at = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto n = static_cast<std::size_t>(parts[p].logit_rows);
    Result<void> alone = together;
    if (parts.size() > 1)
      alone = forward_once(model, std::span(parts).subspan(p, 1),
                           logits.subspan(at * vocab_, n * vocab_));
    if (!alone) (p < decoding.size() ? decoding[p]->error : slice->error) = alone.error();
    at += n;
  }
  return false;
}

/// Goes through the rows of one sequence: each gives the next token, as long as the token before
/// it was drafted right.
void DecodeStep::take(models::Model& model, Decoding& d, std::size_t index, std::size_t first_row) {
  const std::vector<std::int32_t>& rows = rows_[index];
  std::size_t right = 0;
  std::optional<std::int32_t> id;
  while (true) {
    id = d.chooser->next(row(first_row + right));
    if (!id || d.chooser->ended()) break;
    d.ids->push_back(*id);
    if (right + 1 == rows.size() || rows[right + 1] != *id) break;
    ++right;
  }
  if (rows.size() == 1) return;
  model.keep(*d.sequence, static_cast<std::int64_t>(right) + 1);
  // A draft that the end made useless was neither right nor wrong.
  const auto drafted = static_cast<int>(rows.size()) - 1;
  d.drafted += drafted;
  d.accepted += static_cast<std::int64_t>(right);
  if (!d.chooser->ended())
    d.drafting->happened(looked_up_[index], drafted, static_cast<int>(right));
}

}  // namespace ponder::run
