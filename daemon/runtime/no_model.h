#pragma once
// Stands in where no model can be served: the daemon serves, and everything that needs a model is
// refused with the reason. Thread-safe.
#include "engine/base/sentence.h"
#include "engine/generator/generator.h"

namespace ponder::daemon {

class NoModel final : public Generator {
 public:
  explicit NoModel(Error why) : error_(std::move(why)) { error_.code = ErrorCode::model_missing; }

  void plan(GenerationRequest, std::function<void(Result<PromptPlan>)> done) override {
    done(fail(error_));
  }
  void tokenize(std::string, bool,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override {
    done(fail(error_));
  }
  void start(GenerationId, GenerationRequest, std::shared_ptr<OutputSink> sink) override {
    sink->on_ended(Ended{Finish::failed, {}, error_});
  }
  void cancel(GenerationId) override {}
  void answer_now(GenerationId) override {}
  GeneratorStatus status() const override {
    GeneratorStatus status;
    status.state = GeneratorState::failed;
    status.reason = in_one_sentence(error_);
    return status;
  }

 private:
  Error error_;
};

}  // namespace ponder::daemon
