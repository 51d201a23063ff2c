#pragma once
// A model that follows a script in its prompt (stub_script.h): the engine for tests of everything
// around an engine. Its text is a pure function of the prompt, its prompt has one token for every
// four bytes, and budgets, stop strings, cancel, answer_now and resumption work as with a real
// model. A schema does not bound its words.
//
// One thread of its own makes the tokens of all generations and calls the sinks.
#include <memory>

#include "engine/generator/generator.h"

namespace ponder::worker {

class StubGenerator final : public Generator {
 public:
  /// `n_ctx` 0: 32,768.
  explicit StubGenerator(std::int64_t n_ctx);
  /// Ends what runs as cancelled.
  ~StubGenerator() override;

  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override;
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override;
  void start(GenerationId id, GenerationRequest request, std::shared_ptr<OutputSink> sink) override;
  void cancel(GenerationId id) override;
  void answer_now(GenerationId id) override;
  GeneratorStatus status() const override;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ponder::worker
