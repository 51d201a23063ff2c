#pragma once
// How many tokens to draft for the next step of a sequence. Drafts never change the text, only its
// speed: a step reads them together with the last token, and of what it then chooses as many
// tokens count as were drafted right (decode_step.h). The depth k is the one with the most
// expected tokens a second,
//     (others + 1 + a_1 + a_1 a_2 + ... + a_1..a_k) / (step(rows + k) + k draft),
// from running estimates: a_i, how often draft i is right when those before it were (of this
// request only), and how long a step of so many rows and one more draft take here.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/run/lookup.h"

namespace ponder::run {

/// `spec` of requests and flags: adaptive, off, or a fixed depth up to kDeepestDraft.
inline constexpr int kAdaptive = -1;
inline constexpr int kDeepestDraft = 5;
inline constexpr int kLongestLookup = 15;

/// What steps cost on this machine, measured as they happen. Shared by all requests.
class StepCost {
 public:
  void step_took(std::int64_t rows, double seconds);
  void draft_took(double seconds);
  /// Estimates in seconds. What was never measured is taken to be cheap, so that it is tried.
  double step(std::int64_t rows) const;
  double draft() const { return draft_; }

 private:
  static constexpr std::size_t kMostRows = 128;
  std::array<double, kMostRows + 1> steps_ = {};  ///< by rows; 0: not measured
  double draft_ = 0;
};

/// Who else shares the step: their rows, and the tokens that come out of it for them.
struct Company {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
};

/// The choice for one request, from its first token to its last.
class Drafting {
 public:
  /// `model_drafts`: the model has a draft layer; else there is only prompt lookup.
  Drafting(int spec, bool model_drafts) : spec_(spec), model_drafts_(model_drafts) {}

  struct Plan {
    int depth = 0;                             ///< tokens to draft with the model's draft layer
    std::vector<std::int32_t> looked_up = {};  ///< or these, when not empty
  };
  /// For the next step; at most `most` tokens. `sequence` is all of it, with the token chosen last.
  Plan plan(const StepCost& cost, const Company& company, std::int64_t most,
            std::span<const std::int32_t> sequence);
  /// What came of it: the first `right` of `drafted` tokens were what was chosen.
  void happened(bool looked_up, int drafted, int right);
  /// The draft layer failed; go on without it.
  void give_up_layer() { model_drafts_ = false; }

 private:
  int best_depth(const StepCost& cost, const Company& company, int most, double& rate) const;
  int best_lookup(const StepCost& cost, const Company& company, int most, double& rate) const;
  int probed(int depth, int most);
  double right_at(int position) const;

  const int spec_;
  bool model_drafts_;
  std::array<double, kDeepestDraft> right_ = {};  ///< a_i
  std::array<int, kDeepestDraft> seen_ = {};      ///< how often a_i was looked at
  double looked_up_right_ = kFirstGuess;
  int looked_up_seen_ = 0;
  bool lookup_pays_ = false;
  Lookup lookup_;
  int since_probe_ = 0;
  int probe_every_ = kProbeEvery;

  static constexpr double kFirstGuess = 0.75;  ///< of a_1, and of looked-up tokens
  static constexpr int kProbeEvery = 32;
};

}  // namespace ponder::run
