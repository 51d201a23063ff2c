#pragma once
// Stands in where no model is configured: the daemon serves, and everything that needs a model is
// refused with the reason. Thread-safe.
#include "engine/generator/generator.h"

namespace ponder::daemon {

class NoModel final : public Generator {
 public:
  explicit NoModel(std::string reason) : reason_(std::move(reason)) {}

  void plan(GenerationRequest, std::function<void(Result<PromptPlan>)> done) override {
    done(fail(error()));
  }
  void tokenize(std::string, bool,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override {
    done(fail(error()));
  }
  void start(GenerationId, GenerationRequest, std::shared_ptr<OutputSink> sink) override {
    sink->on_ended(Ended{Finish::failed, {}, error()});
  }
  void cancel(GenerationId) override {}
  GeneratorStatus status() const override {
    GeneratorStatus status;
    status.state = GeneratorState::failed;
    status.reason = reason_;
    return status;
  }

 private:
  Error error() const {
    return {ErrorCode::model_missing, reason_,
            "give --model FILE, or install one with `ponder pull`"};
  }
  const std::string reason_;
};

}  // namespace ponder::daemon
