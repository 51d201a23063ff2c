#pragma once
// A model for simulations: a Generator on one thread and in virtual time. What it says is a pure
// function of its prompt; when it says it, and how it dies, comes from the dice.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/generator/generator.h"
#include "tests/fault/simulator/dice.h"

namespace ponder::simulator {

/// All that the model can say to one prompt.
class Script {
 public:
  /// Of a prompt with these words and this effort. A word "[killer=N]" ends the worker at token N.
  static Script of(const GenerationRequest& request);

  std::uint64_t prompt() const { return prompt_; }
  std::optional<std::int64_t> killer_at() const { return killer_at_; }

  /// The token after `tokens`; nullopt: the end. `close`: the thinking is to be closed now.
  std::optional<std::int32_t> next(const std::vector<std::int32_t>& tokens, bool close) const;
  /// The text that a token stands for, "" for the closing of the thinking.
  std::string text_of(std::int32_t token) const;
  /// Its text comes with the next token only, as half a character would.
  bool lags(std::int32_t token) const;
  bool is_close(std::int32_t token) const;
  bool is_reasoning(std::int32_t token) const;
  bool thinks() const { return reasoning_ > 0; }
  /// Whether `tokens` are what it would have said, wherever its thinking was closed.
  bool could_say(const std::vector<std::int32_t>& tokens) const;

  /// Whether these texts are the beginning of something it says; with `whole`, all of it. A closed
  /// thinking may end at any of its words.
  bool begins(const std::string& reasoning, const std::string& answer, bool whole) const;

 private:
  std::string reasoning_text(std::int64_t count) const;
  std::string answer_text() const;

  std::uint64_t prompt_ = 0;
  std::int64_t reasoning_ = 0;
  std::int64_t answer_ = 0;
  std::optional<std::int64_t> killer_at_;
};

class ScriptedModel final : public Generator {
 public:
  struct Habits {
    int fault_percent = 0;     ///< generations that end by a fault of their own
    int stubborn_percent = 0;  ///< cancels that nobody hears for long
    int refused_percent = 0;   ///< plans that are refused as too long
    int late_percent = 0;      ///< plans that come late, or never
    int pace_ms = 100;         ///< between two tokens, on average
  };
  struct Run {
    GenerationId id = 0;
    Script script;
    GenerationRequest request;
    std::shared_ptr<OutputSink> sink;
    std::vector<std::int32_t> tokens;  ///< of the resumed ones too
    std::string held;                  ///< text of tokens that lag
    bool close_asked = false;
    bool forced = false;
    bool deaf = false;
    std::optional<Finish> fate;
    std::size_t fate_at = 0;
    bool cancelled = false;
  };
  /// What the world wants to know. Called before the queue hears of it.
  struct Watcher {
    virtual ~Watcher() = default;
    virtual void run_started(const Run& run) = 0;
    virtual void run_told(const Run& run, Channel channel, const std::string& text) = 0;
    virtual void run_ended(const Run& run, const Ended& ended) = 0;
  };

  ScriptedModel(const Clock& clock, Dice& dice, Habits habits, Watcher& watcher)
      : clock_(clock), dice_(dice), habits_(habits), watcher_(watcher) {}

  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override;
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override;
  void start(GenerationId id, GenerationRequest request, std::shared_ptr<OutputSink> sink) override;
  void cancel(GenerationId id) override;
  void answer_now(GenerationId id) override;
  GeneratorStatus status() const override;

  // For the world.
  std::optional<std::int64_t> next_due_ms() const;
  void fire_due();
  std::size_t live() const { return runs_.size(); }
  /// The worker ends: every generation with `finish`; a new one is there after `loading_ms`.
  void end_worker(Finish finish, std::int64_t loading_ms, GenerationId culprit = 0);
  void load_until(std::int64_t steady_ms) { ready_at_ms_ = steady_ms; }
  void set_habits(Habits habits) { habits_ = habits; }
  /// Who brought the worker down last; 0: somebody outside.
  GenerationId culprit() const { return culprit_; }
  bool repeats_after_resume = false;  ///< a planted bug
  /// Everybody listens and nobody fails from now on.
  void heal();

 private:
  void after(std::int64_t delay_ms, std::function<void()> task);
  void step(GenerationId id);
  void tell(Run& run, Channel channel, std::string text, std::vector<std::int32_t> tokens);
  void finish(GenerationId id, Finish how, std::optional<Error> error = {});
  void own_fault(GenerationId id);

  const Clock& clock_;
  Dice& dice_;
  Habits habits_;
  Watcher& watcher_;
  std::map<GenerationId, Run> runs_;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t next_event_ = 1;
  std::int64_t ready_at_ms_ = 0;
  std::int64_t restarts_ = 0;
  GenerationId culprit_ = 0;
};

}  // namespace ponder::simulator
