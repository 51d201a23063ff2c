#include "jobs/running_job.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/utf8.h"
#include "jobs/envelope.h"

namespace ponder::jobs {

RunningJob::RunningJob(JobRow row, GenerationId generation, StoredText stored,
                       const Resumed& resumed, std::vector<StateChange> changes,
                       std::int64_t steady_ms)
    : row_(std::move(row)),
      generation_(generation),
      text_(std::move(stored.text)),
      changes_(std::move(changes)),
      began_ms_(steady_ms),
      replay_at_(resumed.bytes),
      replay_end_(text_.size()),
      resumed_(resumed),
      stored_bytes_(text_.size()),
      stored_tokens_(stored.reasoning_tokens + stored.answer_tokens),
      stored_reasoning_tokens_(stored.reasoning_tokens),
      stored_answer_tokens_(stored.answer_tokens),
      seen_tokens_(resumed.tokens()),
      seen_reasoning_tokens_(resumed.reasoning_tokens),
      seen_answer_tokens_(resumed.answer_tokens),
      next_chunk_(stored.chunk_count) {}

void RunningJob::add_change(StateChange change) {
  if (change.cut)
    for (StateChange& old : changes_)
      old.text_bytes = std::min(old.text_bytes, change.text_bytes);
  changes_.push_back(std::move(change));
}

std::int64_t RunningJob::reasoning_tokens() const {
  return std::max(seen_reasoning_tokens_, stored_reasoning_tokens_);
}
std::int64_t RunningJob::answer_tokens() const {
  return std::max(seen_answer_tokens_, stored_answer_tokens_);
}

void RunningJob::take_started(const Started& started) {
  note_plan(row_.facts, started.plan);
  note_cache(row_.facts, started);
  prefill_ = PrefillProgress{started.cached_tokens, started.plan.prompt_tokens};
}

Taken RunningJob::take(const Delta& delta, bool of_call) {
  Taken taken;
  const std::string phase = delta.channel == Channel::reasoning ? "thinking" : "answering";
  if (phase != phase_) {
    phase_ = phase;
    taken.phase_changed = true;
  }
  const auto count = static_cast<std::int64_t>(delta.tokens.size());
  seen_tokens_ += count;
  (delta.channel == Channel::reasoning ? seen_reasoning_tokens_ : seen_answer_tokens_) += count;
  forced_answer_ = forced_answer_ || delta.forced_answer;
  // Generators give whole characters; one that does not must not break the text for ever.
  if (!held_.empty() && held_channel_ != delta.channel) {
    const std::string cut = replace_invalid(held_);
    held_.clear();
    write(held_channel_, cut, {}, taken);
  }
  std::string text = held_ + delta.text;
  held_.clear();
  const std::size_t whole = complete_prefix(text);
  held_ = text.substr(whole);
  held_channel_ = delta.channel;
  text.resize(whole);
  write(delta.channel, is_valid_utf8(text) ? text : replace_invalid(text), delta.tokens, taken,
        of_call);
  return taken;
}

Taken RunningJob::take_end() {
  Taken taken;
  if (!held_.empty()) {
    const std::string cut = replace_invalid(held_);
    held_.clear();
    write(held_channel_, cut, {}, taken);
  }
  speak();
  if (replay_at_ < replay_end_) give_up_stored_text(taken);
  return taken;
}

void RunningJob::write(Channel channel, std::string_view text,
                       const std::vector<std::int32_t>& tokens, Taken& taken, bool of_call) {
  std::vector<std::int32_t> fresh = tokens;  // those beyond what is stored
  if (replay_at_ < replay_end_) {
    const std::int64_t same = text_.matches_at(replay_at_, channel, text);
    add(replayed_, channel, text.substr(0, static_cast<std::size_t>(same)), tokens);
    replay_at_ += same;
    text.remove_prefix(static_cast<std::size_t>(same));
    if (replay_at_ == replay_end_) {
      replayed_.clear();
    } else if (text.empty()) {
      return;
    } else {  // another build or machine: from here on the text is a new one
      give_up_stored_text(taken);
      fresh.clear();  // they stand in replayed_
    }
  }
  // Stored tokens may reach beyond the stored text: those that brought none come again as well.
  if (!must_cut_) {
    const std::int64_t beyond = std::clamp<std::int64_t>(seen_tokens_ - stored_tokens_, 0,
                                                         static_cast<std::int64_t>(fresh.size()));
    fresh.erase(fresh.begin(), fresh.end() - beyond);
  }
  if (text.empty() && fresh.empty()) return;
  speak();
  if (text.empty()) {
    silent_ = std::move(fresh);
    silent_channel_ = channel;
    return;
  }
  text_.append(channel, text);
  if (forced_answer_) row_.facts["forced_answer"] = true;
  replay_at_ = replay_end_ = text_.size();
  // A chunk of its own: text that came without a token is told again by a run that resumes.
  if (fresh.empty() && !of_call) unsaved_.push_back({channel, {}, {}});
  add(unsaved_, channel, text, fresh);
  unsaved_bytes_ += text.size();
  taken.grew = true;
}

void RunningJob::speak() {
  if (forced_answer_ && !silent_.empty()) row_.facts["forced_answer"] = true;
  add(unsaved_, silent_channel_, {}, silent_);
  silent_.clear();
}

void RunningJob::give_up_stored_text(Taken& taken) {
  text_.truncate(replay_at_);
  replay_end_ = replay_at_;
  must_cut_ = taken.differs = true;
}

void RunningJob::add(std::vector<Chunk>& chunks, Channel channel, std::string_view text,
                     const std::vector<std::int32_t>& tokens) {
  if (text.empty() && tokens.empty()) return;
  if (chunks.empty() || chunks.back().channel != channel) chunks.push_back({channel, {}, {}});
  chunks.back().text += text;
  chunks.back().tokens.insert(chunks.back().tokens.end(), tokens.begin(), tokens.end());
}

Progress RunningJob::progress(std::int64_t steady_ms) const {
  return {unsaved_, next_chunk_, row_.attempt, run_ms(steady_ms), row_.facts};
}

void RunningJob::saved() {
  next_chunk_ += static_cast<std::int64_t>(unsaved_.size());
  unsaved_.clear();
  unsaved_bytes_ = 0;
}

Progress RunningJob::kept(std::int64_t steady_ms) const {
  return {replayed_, resumed_.chunks, row_.attempt, run_ms(steady_ms), row_.facts};
}

std::int64_t RunningJob::kept_bytes() const {
  std::int64_t bytes = resumed_.bytes;
  for (const Chunk& chunk : replayed_)
    bytes += static_cast<std::int64_t>(chunk.text.size());
  return bytes;
}

void RunningJob::cut_done() {
  CHECK(must_cut_);
  next_chunk_ = resumed_.chunks + static_cast<std::int64_t>(replayed_.size());
  replayed_.clear();
  must_cut_ = false;
  stored_tokens_ = 0;
  stored_reasoning_tokens_ = 0;
  stored_answer_tokens_ = 0;
}

}  // namespace ponder::jobs
