#pragma once
// Stands in where no model can be served: the daemon serves, and everything that needs a model is
// refused with the reason. It is looked for again with each request, and at most once a second for
// who only asks how things stand; once it is there all goes to the generator that was made of it.
// Thread-safe.
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/base/sentence.h"
#include "engine/generator/generator.h"

namespace ponder::daemon {

class NoModel final : public Generator {
 public:
  /// Looks again: a generator of what was found, or why there is none.
  using Look = std::function<Result<std::unique_ptr<Generator>>()>;

  explicit NoModel(Error why, Look look = {}) : error_(std::move(why)), look_(std::move(look)) {
    error_.code = ErrorCode::model_missing;
  }

  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override {
    if (Generator* real = found()) return real->plan(std::move(request), std::move(done));
    done(fail(error_));
  }
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override {
    if (Generator* real = found()) return real->tokenize(std::move(text), special, std::move(done));
    done(fail(error_));
  }
  void start(GenerationId id, GenerationRequest request,
             std::shared_ptr<OutputSink> sink) override {
    if (Generator* real = found()) return real->start(id, std::move(request), std::move(sink));
    sink->on_ended(Ended{Finish::failed, {}, error_});
  }
  void cancel(GenerationId id) override {
    if (Generator* real = known()) real->cancel(id);
  }
  void answer_now(GenerationId id) override {
    if (Generator* real = known()) real->answer_now(id);
  }
  void stop() override {
    if (Generator* real = known()) real->stop();
  }
  void unload(std::function<void(Result<void>)> done) override {
    if (Generator* real = known()) return real->unload(std::move(done));
    Generator::unload(std::move(done));
  }
  GeneratorStatus status() const override {
    if (const Generator* real = found(std::chrono::seconds(1))) return real->status();
    GeneratorStatus status;
    status.state = GeneratorState::failed;
    status.reason = in_one_sentence(error_);
    return status;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The generator once there is one; it stays.
  Generator* known() const {
    const std::lock_guard lock(mutex_);
    return real_.get();
  }
  /// `pause`: not again so soon after the last look.
  Generator* found(std::chrono::seconds pause = {}) const {
    const std::lock_guard lock(mutex_);
    if (real_ || !look_ || Clock::now() < last_look_ + pause) return real_.get();
    last_look_ = Clock::now();
    if (auto made = look_()) real_ = std::move(*made);
    return real_.get();
  }

  Error error_;
  const Look look_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Generator> real_;  // guarded by mutex_
  mutable Clock::time_point last_look_;      // guarded by mutex_
};

}  // namespace ponder::daemon
