#pragma once
// The job as outsiders see it: one JSON object with every field of the contract, null where there
// is no value. Pure. The measured fields lie in the row as `facts`, already in this shape.
#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/generator/generator.h"
#include "jobs/estimate.h"
#include "jobs/store/job_store.h"

namespace ponder::jobs {

class RunningJob;

/// Answers up to this many characters stand in the envelope of a job.
inline constexpr std::int64_t kInlineAnswerChars = 16'384;

/// What the row alone does not say.
struct EnvelopeView {
  std::int64_t now_ms = 0;  ///< wall clock
  std::int64_t steady_ms = 0;
  const RunningJob* running = nullptr;  ///< set while it runs
  std::optional<std::int64_t> position = {};
  std::string waiting_for = {};
  std::optional<Estimate> eta = {};
  std::optional<std::string> answer = {};  ///< of a completed job, if it is to be shown
  std::string note = {};                   ///< added to the row's
};

json::object envelope(const JobRow& row, const EnvelopeView& view);

/// Measurements into a row's facts.
void note_plan(json::object& facts, const PromptPlan& plan);
void note_cache(json::object& facts, const Started& started);
void note_usage(json::object& facts, const Usage& usage);
void note_model(json::object& facts, const ModelInfo& model);
void note_build(json::object& facts, const std::string& build);

/// A fact that is text; else "".
std::string text_fact(const json::object& facts, const char* key);
/// Whether what is stored of a job was made by this model, as far as is known.
bool is_model_of(const JobRow& row, const ModelInfo& model);

/// "a; b", or the one that is there.
std::string join_notes(const std::string& a, const std::string& b);

}  // namespace ponder::jobs
