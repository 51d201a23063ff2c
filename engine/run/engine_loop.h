#pragma once
// All sequences of one model, step by step: who may start, what each reads, when states are saved
// and found again. No thread and no lock of its own; the engine's thread calls it.
//
// A step holds a row for each sequence that is being decoded (more where tokens are drafted) and
// at most one slice of one prompt. What a sequence says does not depend on the others: a row's
// numbers are the same in any company.
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/generator/generator.h"
#include "engine/models/model.h"
#include "engine/run/decode_step.h"
#include "engine/run/output_stream.h"
#include "engine/run/state_store.h"
#include "engine/text/tokenizer.h"

namespace ponder::run {

/// One generation. The flags are set by any thread; the rest belongs to whoever prepares it until
/// it is handed to the loop.
struct Turn {
  GenerationId id = 0;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> answer_now{false};

  std::vector<text::TokenId> ids;     ///< the prompt; the loop adds what is made
  std::vector<text::TokenId> resume;  ///< made by an earlier run of it
  std::vector<std::int64_t> marks;    ///< of the prompt (marks.h)
  std::int64_t most_tokens = 0;       ///< output at most, resumed tokens included
  bool ignore_eos = false;
  std::unique_ptr<OutputStream> output;
};

struct LoopOptions {
  StateStoreOptions store = {};
  /// Bytes that the running sequences and the states on the device may take together; 0: no bound.
  /// A turn whose need is not free beside those that run ends as no_memory before it starts; alone
  /// it always starts. States give way to what runs.
  std::uint64_t context_bytes = 0;
  int spec = kAdaptive;
  /// As many as the daemon's settings can start: what waits here tells nothing, and the daemon
  /// takes a silent generation for a stalled one.
  std::size_t most_running = 128;
  StepClock clock = steady_seconds;
};

class EngineLoop {
 public:
  /// `memory_changed`: see Generator::watch_memory.
  EngineLoop(models::Model& model, const text::Tokenizer& tokenizer, LoopOptions options,
             std::function<void(const ContextMemory&)> memory_changed = {});
  ~EngineLoop();

  /// Runs when its turn comes: in the order of the calls.
  void add(std::shared_ptr<Turn> turn);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  /// One step. The turns that have ended in it, their sinks told.
  std::vector<std::shared_ptr<Turn>> step();

  const StateStore& store() const { return store_; }
  ContextMemory memory() const;

 private:
  struct Running;
  using Iterator = std::vector<std::unique_ptr<Running>>::iterator;

  void admit(std::vector<std::shared_ptr<Turn>>& ended);
  void end_broken(Running& running);
  void reserve(std::uint64_t bytes);
  void release(std::uint64_t bytes);
  void limit_states();
  Result<void> begin(Running& running);
  void find_state(Running& running, Started& started);
  static void mark_divergence(Turn& turn, const StateStore::Found& found);
  Running* next_to_prefill();
  std::size_t slice_size(const Running& running, std::size_t decoding) const;
  void prefilled(Running& running, const PromptSlice& slice, double seconds);
  void save(Running& running, bool pin);
  void unpin(Running& running);
  void checkpoint(Running& running);
  void finish(Running& running);
  void spare(Running& running);
  bool free_memory();

  models::Model& model_;
  const text::Tokenizer& tokenizer_;
  const LoopOptions options_;
  const std::function<void(const ContextMemory&)> memory_changed_;
  std::uint64_t reserved_ = 0;  ///< needs of all that run
  StateStore store_;
  DecodeStep step_;
  std::deque<std::shared_ptr<Turn>> waiting_;
  std::vector<std::unique_ptr<Running>> running_;  ///< the next one to prefill first
  std::unique_ptr<models::SequenceState> spare_;   ///< memory for the next turn; cleared
  double prefill_per_s_ = 0;                       ///< of the last slice
};

}  // namespace ponder::run
