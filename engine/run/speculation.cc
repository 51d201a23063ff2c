#include "engine/run/speculation.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace ponder::run {
namespace {

constexpr double kCostWeight = 0.2;      // of the newest measurement
constexpr double kRightWeight = 0.04;    // of the newest draft, once there were some
constexpr double kUnseenRowCost = 0.03;  // of a step, for each row more than was ever measured
constexpr double kDeeper = 0.95;         // a_i over a_(i-1) until it was seen
constexpr double kWorthMore = 1.01;      // one more draft must promise so much more
constexpr int kProbeSeldom = 1024;
constexpr std::size_t kSureMatch = 8, kTrustedMatch = 4;

void blend(double& estimate, double seconds) {
  // One step may be slow because something else ran, or because weights came from the disk: it
  // counts, but not for more than twice. None is fast by chance: an estimate of over twice a
  // measurement was made of slow ones (the first draft, which reads its layer from the disk).
  if (estimate <= 0 || seconds < estimate / 2)
    estimate = seconds;
  else
    estimate += kCostWeight * (std::min(seconds, 2 * estimate) - estimate);
}

}  // namespace

void StepCost::step_took(std::int64_t rows, double seconds) {
  if (rows >= 1 && rows <= static_cast<std::int64_t>(kMostRows))
    blend(steps_[static_cast<std::size_t>(rows)], std::max(seconds, 1e-9));
}

void StepCost::draft_took(double seconds) {
  blend(draft_, std::max(seconds, 1e-9));
}

double StepCost::step(std::int64_t rows) const {
  const auto at = static_cast<std::size_t>(
      std::clamp<std::int64_t>(rows, 1, static_cast<std::int64_t>(kMostRows)));
  if (steps_[at] > 0) return steps_[at];
  std::size_t below = at, above = at;
  while (below > 0 && steps_[below] <= 0)
    --below;
  while (above <= kMostRows && steps_[above] <= 0)
    ++above;
  if (below == 0)
    return above <= kMostRows ? steps_[above] * static_cast<double>(at) / static_cast<double>(above)
                              : 1e-3;
  const double from = steps_[below];
  const auto further = static_cast<double>(at - below);
  if (above > kMostRows) return from * (1 + kUnseenRowCost * further);
  return from + (steps_[above] - from) * further / static_cast<double>(above - below);
}

double Drafting::right_at(int position) const {
  double right = kFirstGuess;
  for (int i = 0; i <= position; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (seen_[at] > 0)
      right = right_[at];
    else if (i > 0)
      right *= kDeeper;
  }
  return right;
}

int Drafting::best_depth(const StepCost& cost, const Company& company, int most,
                         double& rate) const {
  int best = 0;
  double tokens = static_cast<double>(company.tokens) + 1, chain = 1;
  for (int k = 0; k <= std::min(most, kDeepestDraft); ++k) {
    if (k > 0) {
      chain *= right_at(k - 1);
      tokens += chain;
    }
    const double r = tokens / (cost.step(company.rows + 1 + k) + k * cost.draft());
    if (k == 0 || r > kWorthMore * rate) {
      rate = r;
      best = k;
    }
  }
  return best;
}

int Drafting::best_lookup(const StepCost& cost, const Company& company, int most,
                          double& rate) const {
  int best = 0;
  double tokens = static_cast<double>(company.tokens) + 1, chain = 1;
  rate = 0;
  for (int k = 1; k <= most; ++k) {
    chain *= looked_up_right_;
    tokens += chain;
    const double r = tokens / cost.step(company.rows + 1 + k);
    if (r > rate) {
      rate = r;
      best = k;
    }
  }
  return best;
}

/// Now and then another depth than the best one, so that the estimates stay true.
int Drafting::probed(int depth, int most) {
  if (++since_probe_ < probe_every_ || most == 0) return depth;
  since_probe_ = 0;
  if (depth == 0) {
    probe_every_ = std::min(2 * probe_every_, kProbeSeldom);
    return std::min(2, most);
  }
  probe_every_ = kProbeEvery;
  return depth < std::min(most, kDeepestDraft) ? depth + 1 : depth - 1;
}

Drafting::Plan Drafting::plan(const StepCost& cost, const Company& company, std::int64_t most,
                              std::span<const std::int32_t> sequence) {
  Plan plan;
  const int room = static_cast<int>(std::clamp<std::int64_t>(most, 0, kLongestLookup));
  if (spec_ >= 0) {
    if (model_drafts_) plan.depth = std::min({spec_, room, kDeepestDraft});
    return plan;
  }
  lookup_.follow(sequence);
  double rate = 0, lookup_rate = 0;
  if (model_drafts_)
    plan.depth = best_depth(cost, company, std::min(room, kDeepestDraft), rate);
  else
    rate = static_cast<double>(company.tokens + 1) / cost.step(company.rows + 1);
  std::vector<std::int32_t> found = lookup_.drafts(
      sequence, lookup_pays_ ? kTrustedMatch : kSureMatch, static_cast<std::size_t>(room));
  if (!found.empty()) {
    const int length = best_lookup(cost, company, static_cast<int>(found.size()), lookup_rate);
    if (lookup_rate > rate) {
      found.resize(static_cast<std::size_t>(length));
      plan.looked_up = std::move(found);
      plan.depth = 0;
      return plan;
    }
    // Not used now; what it was worth long ago says less and less.
    looked_up_right_ += 0.02 * (kFirstGuess - looked_up_right_);
  }
  if (model_drafts_) plan.depth = probed(plan.depth, room);
  return plan;
}

void Drafting::happened(bool looked_up, int drafted, int right) {
  CHECK(right >= 0 && right <= drafted);
  // The first guess counts as a few drafts that were seen.
  const auto learn = [](double& estimate, int& seen, bool was_right) {
    const double weight = std::max(kRightWeight, 1.0 / (4 + ++seen));
    estimate += weight * ((was_right ? 1.0 : 0.0) - estimate);
  };
  for (int i = 0; i < std::min(right + 1, drafted); ++i) {
    if (looked_up) {
      learn(looked_up_right_, looked_up_seen_, i < right);
      continue;
    }
    if (i >= kDeepestDraft) break;
    const auto at = static_cast<std::size_t>(i);
    if (seen_[at] == 0) right_[at] = right_at(i);
    learn(right_[at], seen_[at], i < right);
  }
  if (looked_up && drafted > 0) lookup_pays_ = right > 0 && looked_up_right_ > 0.6;
}

}  // namespace ponder::run
