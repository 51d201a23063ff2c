#pragma once
// The engine itself behind the Generator door. Two threads: `prep` renders and tokenizes, `engine`
// owns the model and every sequence and calls the sinks. Each turn of the engine takes one step of
// one sequence, a prefill chunk or a token, in turn, so that a short ask advances beside a long
// job.
#include <memory>

#include "engine/generator/generator.h"
#include "engine/run/load.h"
#include "engine/run/prompt.h"

namespace ponder::run {

class LocalGenerator final : public Generator {
 public:
  explicit LocalGenerator(LoadedModel model, EffortBudgets effort_budgets = {});
  /// Ends what runs as cancelled.
  ~LocalGenerator() override;

  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override;
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override;
  void start(GenerationId id, GenerationRequest request, std::shared_ptr<OutputSink> sink) override;
  void cancel(GenerationId id) override;
  GeneratorStatus status() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ponder::run
