#pragma once
// One job while it runs: its text so far, what of it is not on disk yet, its phase and counts.
// A job that ran before goes on after its stored tokens, which its generator was given. Where that
// is not possible it is generated again from its prompt with the same seed, so the same text comes
// again: what matches the stored text is neither stored nor told a second time, and where it does
// not match, the stored text gives way. Owned by the queue thread; does no I/O itself.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/generator/generator.h"
#include "jobs/job_text.h"
#include "jobs/queue_thread.h"
#include "jobs/store/job_store.h"
#include "jobs/verdict.h"

namespace ponder::jobs {

/// What the text of a delta came to.
struct Taken {
  bool grew = false;  ///< there is new text to tell
  bool phase_changed = false;
  bool differs = false;  ///< the stored text is not what is written now: cut it
};

class RunningJob {
 public:
  RunningJob(JobRow row, GenerationId generation, StoredText stored, const Resumed& resumed,
             std::vector<StateChange> changes, std::int64_t steady_ms);

  const JobRow& row() const { return row_; }
  JobRow& row() { return row_; }
  GenerationId generation() const { return generation_; }
  Fence fence() const { return {row_.seq, row_.id, row_.claims, row_.instance}; }
  const JobText& text() const { return text_; }
  const std::vector<StateChange>& changes() const { return changes_; }
  void add_change(StateChange change);

  /// "prefill", "thinking" or "answering".
  const std::string& phase() const { return phase_; }
  std::optional<PrefillProgress> prefill() const { return prefill_; }
  std::int64_t reasoning_tokens() const;
  std::int64_t answer_tokens() const;
  /// Milliseconds of running, over all attempts.
  std::int64_t run_ms(std::int64_t steady_ms) const {
    return row_.run_ms + (ended_ms_ ? *ended_ms_ : steady_ms) - began_ms_;
  }
  /// The running time ends here, however long it takes to write it down.
  void stop_clock(std::int64_t steady_ms) {
    if (!ended_ms_) ended_ms_ = steady_ms;
  }

  void take_started(const Started& started);
  void take_prefill(const PrefillProgress& progress) { prefill_ = progress; }
  /// `of_call`: the text is that of a tool call, told apart from the tokens that made it.
  Taken take(const Delta& delta, bool of_call = false);
  /// The output is over: what was held back comes out, and stored text that did not come again
  /// differs.
  Taken take_end();

  /// It has written more than all its attempts before.
  bool is_beyond_stored_text() const { return text_.size() > stored_bytes_; }
  /// Bytes of text that are not on disk.
  std::size_t unsaved_bytes() const { return unsaved_bytes_; }
  /// What append() or leave() writes. saved() after it was written.
  Progress progress(std::int64_t steady_ms) const;
  void saved();
  /// After `differs`: what cut() writes, the part of the stored text that holds. cut_done() after
  /// it was written; until then nothing else may be written or told.
  Progress kept(std::int64_t steady_ms) const;
  std::int64_t kept_bytes() const;
  void cut_done();
  bool must_cut() const { return must_cut_; }

  // The queue's business with it.
  Intent intent = Intent::none;
  std::optional<Leave> leave;  ///< decided, not yet on disk
  std::optional<QueueThread::TimerId> flush_timer, deadline_timer, end_timer;
  std::int64_t last_progress_ms = 0;
  std::int64_t waits_since_ms = 0;  ///< steady; also before earlier attempts of this life
  std::size_t refused_bytes = 0;    ///< unsaved when the disk refused them last; 0: it took them
  std::int64_t synced_ms = 0;  ///< steady; all that was appended until then outlives a power cut
  std::optional<std::int64_t> trial_ends_ms;  ///< see QueueActor::on_trial()
  json::value schema;                         ///< null: none
  OnLimit on_limit = OnLimit::stop;
  std::uint64_t memory_bytes = 0;  ///< that it takes at most; 0: not known
  std::int64_t may_yield_ms = 0;   ///< steady; until then it makes room for nobody

 private:
  void write(Channel channel, std::string_view text, const std::vector<std::int32_t>& tokens,
             Taken& taken, bool of_call = false);
  void give_up_stored_text(Taken& taken);
  void speak();
  static void add(std::vector<Chunk>& chunks, Channel channel, std::string_view text,
                  const std::vector<std::int32_t>& tokens);

  JobRow row_;
  GenerationId generation_;
  JobText text_;
  std::vector<StateChange> changes_;
  std::string phase_ = "prefill";
  std::optional<PrefillProgress> prefill_;
  std::int64_t began_ms_;
  std::optional<std::int64_t> ended_ms_;

  std::int64_t replay_at_ = 0;     ///< bytes of the stored text that came again
  std::int64_t replay_end_ = 0;    ///< bytes that were stored
  std::vector<Chunk> replayed_;    ///< what came again, for a cut; empty once all of it came
  Resumed resumed_;                ///< stands before that
  std::int64_t stored_bytes_ = 0;  ///< of text, when this attempt began
  std::int64_t stored_tokens_ = 0;
  std::int64_t stored_reasoning_tokens_ = 0;
  std::int64_t stored_answer_tokens_ = 0;
  std::int64_t seen_tokens_ = 0;
  std::int64_t seen_reasoning_tokens_ = 0;
  std::int64_t seen_answer_tokens_ = 0;
  bool must_cut_ = false;
  bool forced_answer_ = false;  ///< in the facts once the tokens that closed it are to be stored

  std::string held_;  ///< the beginning of a character
  Channel held_channel_ = Channel::answer;
  /// Tokens that brought no text so far. The last of them wait for what comes next, which may be
  /// text that their generator tells apart from its tokens: a run that resumes must have both or
  /// neither.
  std::vector<std::int32_t> silent_;
  Channel silent_channel_ = Channel::answer;
  std::vector<Chunk> unsaved_;
  std::size_t unsaved_bytes_ = 0;
  std::int64_t next_chunk_ = 0;
};

}  // namespace ponder::jobs
