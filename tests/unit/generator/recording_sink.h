#pragma once
// A sink that keeps what it is told and lets a test wait for it.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/generator/generator.h"

namespace ponder::test {

/// What one generation said so far.
struct Heard {
  std::vector<Started> started;
  std::vector<PrefillProgress> prefill;
  std::vector<Delta> deltas;
  std::vector<ToolCall> calls;
  std::vector<Ended> ended;
  int after_end = 0;  ///< events that came after Ended

  std::string text(Channel channel) const {
    std::string all;
    for (const Delta& d : deltas)
      if (d.channel == channel) all += d.text;
    return all;
  }
  std::vector<std::int32_t> tokens() const {
    std::vector<std::int32_t> all;
    for (const Delta& d : deltas)
      all.insert(all.end(), d.tokens.begin(), d.tokens.end());
    return all;
  }
};

class RecordingSink final : public OutputSink {
 public:
  void on_started(const Started& e) override {
    note([&] { heard_.started.push_back(e); });
  }
  void on_prefill(const PrefillProgress& e) override {
    note([&] { heard_.prefill.push_back(e); });
  }
  void on_delta(const Delta& e) override {
    note([&] { heard_.deltas.push_back(e); });
  }
  void on_tool_call(const ToolCallMade& e) override {
    note([&] { heard_.calls.push_back(e.call); });
  }
  void on_ended(const Ended& e) override {
    note([&] { heard_.ended.push_back(e); });
  }

  /// Waits until `condition` holds of what was heard; false after `seconds`.
  bool wait(const std::function<bool(const Heard&)>& condition, double seconds = 30) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return condition(heard_); });
  }
  bool wait_end(double seconds = 30) {
    return wait([](const Heard& h) { return !h.ended.empty(); }, seconds);
  }
  Heard heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }
  /// After wait_end(): how it ended.
  Finish finish() { return heard().ended.at(0).finish; }

 private:
  template <class Change>
  void note(Change change) {
    const std::lock_guard lock(mutex_);
    if (!heard_.ended.empty()) ++heard_.after_end;
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Heard heard_;
};

inline GenerationRequest ask(std::string text, std::string effort = "medium") {
  GenerationRequest request;
  request.chat.messages.push_back({"user", std::move(text)});
  request.chat.effort = parse_effort(std::string_view(effort)).value();
  return request;
}

/// Runs one generation to its end.
inline std::shared_ptr<RecordingSink> run(Generator& generator, GenerationId id,
                                          GenerationRequest request, double seconds = 30) {
  auto sink = std::make_shared<RecordingSink>();
  generator.start(id, std::move(request), sink);
  sink->wait_end(seconds);
  return sink;
}

/// The value a callback-style call gives.
template <class T>
Result<T> await(const std::function<void(std::function<void(Result<T>)>)>& call,
                double seconds = 30) {
  struct Box {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Result<T>> results;
  };
  auto box = std::make_shared<Box>();
  call([box](Result<T> result) {
    const std::lock_guard lock(box->mutex);
    box->results.push_back(std::move(result));
    box->changed.notify_all();
  });
  std::unique_lock lock(box->mutex);
  if (!box->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return !box->results.empty(); }))
    return fail(ErrorCode::timed_out, "the test waited in vain");
  return box->results.front();
}

inline Result<PromptPlan> plan(Generator& generator, GenerationRequest request) {
  return await<PromptPlan>([&](std::function<void(Result<PromptPlan>)> done) {
    generator.plan(request, std::move(done));
  });
}

inline Result<std::vector<std::int32_t>> tokenize(Generator& generator, const std::string& text) {
  return await<std::vector<std::int32_t>>(
      [&](std::function<void(Result<std::vector<std::int32_t>>)> done) {
        generator.tokenize(text, false, std::move(done));
      });
}

}  // namespace ponder::test
