#pragma once
// The engine itself behind the Generator door. Two threads: `prep` renders and tokenizes, `engine`
// owns the model, every sequence and the saved states, and calls the sinks. Sequences run at once
// and share steps: each step holds a row or more of every one that is being decoded and a slice of
// one prompt, so that a short ask advances beside a long job. Who may start is the daemon's to say.
// What a generation says depends on its request alone: not on who runs beside it, on what was
// found in the store of states, on drafts, or on where an earlier run was cut (resume).
#include <memory>
#include <optional>

#include "engine/generator/generator.h"
#include "engine/run/load.h"
#include "engine/run/prompt.h"

namespace ponder::run {

struct GeneratorOptions {
  EffortBudgets effort_budgets = {};
  /// Memory for saved states, in MiB; unset: a share of what is free (state_budget.h).
  std::optional<std::int64_t> device_state_mib = {};  ///< on the device
  std::optional<std::int64_t> host_state_mib = {};    ///< copies in host memory
  /// Memory of all that runs and of the states on the device together, in MiB; 0: no bound.
  std::optional<std::int64_t> context_mib = {};
  int spec = -1;  ///< tokens drafted a step: -1 what pays, 0 none, 1 to 5 (speculation.h)
};

class LocalGenerator final : public Generator {
 public:
  explicit LocalGenerator(LoadedModel model, const GeneratorOptions& options = {});
  /// Ends what runs as cancelled.
  ~LocalGenerator() override;

  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override;
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override;
  void start(GenerationId id, GenerationRequest request, std::shared_ptr<OutputSink> sink) override;
  void cancel(GenerationId id) override;
  void answer_now(GenerationId id) override;
  GeneratorStatus status() const override;
  /// Called on the engine's thread.
  void watch_memory(std::function<void(const ContextMemory&)> changed) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ponder::run
