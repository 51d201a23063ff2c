#include "engine/run/engine_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

#include "engine/base/check.h"
#include "engine/run/marks.h"

namespace ponder::run {
namespace {

// A slice of a prompt takes about this long: what is being decoded waits for it, and cancel, new
// turns and the daemon's stall clock do where nothing is. Rows are the same in any slice.
constexpr double kSliceBesideDecoding = 0.1;
constexpr double kSliceAlone = 1.0;
constexpr std::size_t kLeastSlice = 16;  // also before the speed is known
// A copy is 150 MB for a 27B model, which makes that many tokens in ten seconds.
constexpr std::int64_t kCheckpointSpacing = 256;

Error no_memory() {
  return {ErrorCode::out_of_memory, "there is not enough memory for this conversation",
          "use a smaller --ctx, or close other programs"};
}

Error not_now(std::uint64_t need, std::uint64_t free) {
  Error error{ErrorCode::out_of_memory,
              fmt::format("it needs {} MiB beside what runs, and {} MiB are free", (need >> 20) + 1,
                          free >> 20)};
  error.details = {{"needed", static_cast<std::int64_t>(need)},
                   {"free", static_cast<std::int64_t>(free)}};
  return error;
}

/// The output stream of a turn as a chooser. The counts of drafts are in its usage before any
/// token can end it.
class OutputChooser final : public Chooser {
 public:
  OutputChooser(const text::Tokenizer& tokenizer, const Turn& turn, const Decoding& decoding)
      : tokenizer_(tokenizer), turn_(turn), output_(*turn.output), decoding_(decoding) {}

  std::optional<std::int32_t> next(std::span<float> logits) override {
    output_.usage().drafted = decoding_.drafted;
    output_.usage().accepted = decoding_.accepted;
    ++made_;
    return output_.next(logits);
  }
  std::int32_t guess(std::span<float> logits, std::span<const std::int32_t> drafts) const override {
    return output_.guess(logits, drafts);
  }
  bool ended() const override { return output_.ended(); }
  bool is_end(std::int32_t id) const override { return !turn_.ignore_eos && tokenizer_.is_end(id); }
  std::int64_t room() const override {
    return turn_.most_tokens - made_ - static_cast<std::int64_t>(turn_.resume.size());
  }

 private:
  const text::Tokenizer& tokenizer_;
  const Turn& turn_;
  OutputStream& output_;
  const Decoding& decoding_;
  std::int64_t made_ = 0;
};

}  // namespace

struct EngineLoop::Running {
  Running(std::shared_ptr<Turn> t, const text::Tokenizer& tokenizer, int spec, bool model_drafts)
      : turn(std::move(t)), drafting(spec, model_drafts), chooser(tokenizer, *turn, decoding) {}

  const std::shared_ptr<Turn> turn;
  std::unique_ptr<models::SequenceState> sequence;
  Drafting drafting;
  Decoding decoding = {};
  OutputChooser chooser;
  bool decodes = false;            ///< its prompt is read
  std::int64_t from_store = 0;     ///< tokens that were not read again
  std::int64_t pinned_length = 0;  ///< of its state in the store that is pinned; 0: none
  std::int64_t checkpoint = 0;     ///< length when it was saved last, or began to decode
  std::uint64_t need = 0;          ///< bytes at most
  double prefill_s = 0;

  OutputStream& output() { return *turn->output; }
  std::size_t left() const {
    return turn->ids.size() - static_cast<std::size_t>(sequence->length());
  }
};

EngineLoop::EngineLoop(models::Model& model, const text::Tokenizer& tokenizer, LoopOptions options,
                       std::function<void(const ContextMemory&)> memory_changed)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      memory_changed_(std::move(memory_changed)),
      store_(options.store,
             [&model](const models::Snapshot& snapshot)
                 -> Result<std::shared_ptr<const models::Snapshot>> {
               try {
                 return model.to_host(snapshot);
               } catch (const std::bad_alloc&) {
                 return fail(no_memory());
               }
             }),
      step_(
          model, [this] { return free_memory(); }, options.clock) {}

EngineLoop::~EngineLoop() = default;

void EngineLoop::add(std::shared_ptr<Turn> turn) {
  waiting_.push_back(std::move(turn));
}

std::vector<std::shared_ptr<Turn>> EngineLoop::step() {
  std::vector<std::shared_ptr<Turn>> ended;
  for (auto turn = waiting_.begin(); turn != waiting_.end();) {
    if (!(*turn)->cancelled) {
      ++turn;
      continue;
    }
    (*turn)->output->end(Finish::cancelled);
    ended.push_back(std::move(*turn));
    turn = waiting_.erase(turn);
  }
  admit(ended);
  limit_states();
  for (const std::unique_ptr<Running>& r : running_) {
    if (r->turn->cancelled) r->output().end(Finish::cancelled);
    if (r->turn->answer_now.exchange(false)) r->output().answer_now();
  }

  std::vector<Decoding*> decoding;
  for (const std::unique_ptr<Running>& r : running_)
    if (r->decodes && !r->output().ended()) decoding.push_back(&r->decoding);
  PromptSlice slice;
  Running* const prefilling = next_to_prefill();
  if (prefilling) {
    const std::size_t n = slice_size(*prefilling, decoding.size());
    const auto done = static_cast<std::size_t>(prefilling->sequence->length());
    slice.sequence = prefilling->sequence.get();
    slice.ids = std::span<const text::TokenId>(prefilling->turn->ids).subspan(done, n);
    slice.wants_logits = n == prefilling->left();
  }
  if (prefilling || !decoding.empty()) {
    const double began = options_.clock();
    step_.run(model_, decoding, prefilling ? &slice : nullptr);
    if (prefilling) prefilled(*prefilling, slice, options_.clock() - began);
  }

  for (std::size_t i = 0; i < running_.size();) {
    Running& r = *running_[i];
    if (r.decoding.error) end_broken(r);
    if (!r.output().ended()) {
      if (r.decodes) checkpoint(r);
      ++i;
      continue;
    }
    finish(r);
    spare(r);
    ended.push_back(r.turn);
    const std::uint64_t need = r.need;
    running_.erase(running_.begin() + static_cast<long>(i));
    release(need);
  }
  return ended;
}

/// Where the system has no memory for one of several, it may go on when there is.
void EngineLoop::end_broken(Running& r) {
  Error error = *std::exchange(r.decoding.error, std::nullopt);
  const bool others = std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    return other.get() != &r && !other->output().ended();
  });
  const bool later = others && error.code == ErrorCode::out_of_memory;
  r.output().end(later ? Finish::no_memory : Finish::failed, std::move(error));
}

/// A chunk must hold a row of each and one of a prompt.
void EngineLoop::admit(std::vector<std::shared_ptr<Turn>>& ended) {
  const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(model_.chunk() - 1, 1));
  while (!waiting_.empty() && running_.size() < std::min(options_.most_running, rows)) {
    const std::shared_ptr<Turn> turn = std::move(waiting_.front());
    waiting_.pop_front();
    const ContextMemory memory = this->memory();
    // Resumed tokens are part of most_tokens.
    const std::uint64_t need =
        memory.need(static_cast<std::int64_t>(turn->ids.size()) + turn->most_tokens);
    if (memory.budget > 0 && !running_.empty() && need > memory.free) {
      turn->output->end(Finish::no_memory, not_now(need, memory.free));
      ended.push_back(turn);
      continue;
    }
    auto running = std::make_unique<Running>(turn, tokenizer_, options_.spec, model_.drafts());
    running->need = need;
    reserve(need);
    Result<void> begun;
    try {
      begun = begin(*running);
    } catch (const std::bad_alloc&) {
      begun = fail(no_memory());
    }
    running_.push_back(std::move(running));
    if (begun) continue;
    running_.back()->decoding.error = begun.error();
    end_broken(*running_.back());
  }
}

ContextMemory EngineLoop::memory() const {
  ContextMemory memory;
  memory.budget = options_.context_bytes;
  memory.free = memory.budget - std::min(memory.budget, reserved_);
  // Its own, and a saved state that it pins.
  memory.sequence_bytes = model_.sequence_bytes() * (options_.store.enabled() ? 2 : 1);
  memory.page_bytes = model_.page_bytes();
  return memory;
}

void EngineLoop::reserve(std::uint64_t bytes) {
  reserved_ += bytes;
  if (options_.context_bytes > 0 && memory_changed_) memory_changed_(memory());
}

void EngineLoop::release(std::uint64_t bytes) {
  CHECK(bytes <= reserved_);
  reserved_ -= bytes;
  if (options_.context_bytes > 0 && memory_changed_) memory_changed_(memory());
}

/// States on the device may take what is not used by the sequences: not what these reserve, since
/// most of that may never come.
void EngineLoop::limit_states() {
  const ContextMemory memory = this->memory();
  if (memory.budget == 0) return;
  std::uint64_t used = 0;
  for (const std::unique_ptr<Running>& r : running_)
    used += memory.need(r->sequence ? r->sequence->length() + model_.chunk() : 0);
  if (spare_) used += model_.sequence_bytes();
  store_.limit_device(memory.budget - std::min(memory.budget, used));
}

Result<void> EngineLoop::begin(Running& r) {
  Turn& turn = *r.turn;
  turn.ids.insert(turn.ids.end(), turn.resume.begin(), turn.resume.end());
  r.sequence = spare_ ? std::move(spare_) : model_.new_sequence();
  r.decoding.sequence = r.sequence.get();
  r.decoding.chooser = &r.chooser;
  r.decoding.ids = &turn.ids;
  r.decoding.drafting = &r.drafting;

  Started started;
  started.plan = r.output().plan();
  find_state(r, started);
  r.output().usage().cached_tokens = started.cached_tokens;
  r.output().sink().on_started(started);
  for (const text::TokenId id : turn.resume)
    r.output().replay(id);
  return {};
}

void EngineLoop::find_state(Running& r, Started& started) {
  const StateStore::Found found = store_.find(r.turn->ids);
  started.miss_reason = found.miss_reason;
  started.diverged_at = found.diverged_at;
  mark_divergence(*r.turn, found);
  if (!found.snapshot) return;
  if (!model_.restore(*r.sequence, *found.snapshot)) {
    r.sequence->clear();  // it costs the time to read it all again, and nothing else
    return;
  }
  r.from_store = found.snapshot->length();
  started.cache_path = found.path;
  started.cached_tokens = std::min(r.from_store, started.plan.prompt_tokens);
  save(r, true);  // it was in host memory, perhaps
  // A mark just behind it would bring a pass and a copy, and hardly a token.
  std::vector<std::int64_t>& marks = r.turn->marks;
  if (marks.empty()) return;
  const std::int64_t end = marks.back();
  std::erase_if(marks, [&](std::int64_t mark) {
    return mark != end && mark >= r.from_store && mark - r.from_store < kMarkSpacing;
  });
}

/// Where two prompts part, a third one is likely to part too: what they share, a document before
/// other questions say, is then read for the last time.
void EngineLoop::mark_divergence(Turn& turn, const StateStore::Found& found) {
  if (!found.diverged_at) return;
  const std::int64_t at = *found.diverged_at;
  const std::int64_t got = found.snapshot ? found.snapshot->length() : 0;
  if (at - got < kMarkSpacing || at >= static_cast<std::int64_t>(turn.ids.size())) return;
  const auto next = std::lower_bound(turn.marks.begin(), turn.marks.end(), at);
  if (next == turn.marks.end() || *next != at) turn.marks.insert(next, at);
}

EngineLoop::Running* EngineLoop::next_to_prefill() {
  for (const std::unique_ptr<Running>& r : running_)
    if (!r->decodes && !r->output().ended()) return r.get();
  return nullptr;
}

std::size_t EngineLoop::slice_size(const Running& r, std::size_t decoding) const {
  const auto most = static_cast<std::size_t>(step_.slice_room(decoding));
  std::size_t n = kLeastSlice;
  if (prefill_per_s_ > 0) {
    const double seconds = decoding > 0 ? kSliceBesideDecoding : kSliceAlone;
    n = std::max(
        static_cast<std::size_t>(std::min(prefill_per_s_ * seconds, static_cast<double>(most))),
        kLeastSlice);
  }
  const std::int64_t at = r.sequence->length();
  const auto to_mark = static_cast<std::size_t>(
      next_mark(r.turn->marks, at, at + static_cast<std::int64_t>(r.left())) - at);
  return std::min({n, most, to_mark});
}

void EngineLoop::prefilled(Running& r, const PromptSlice& slice, double seconds) {
  if (slice.error) {
    r.decoding.error = slice.error;
    return;
  }
  r.prefill_s += seconds;
  if (slice.ids.size() >= kLeastSlice && seconds > 0)
    prefill_per_s_ = static_cast<double>(slice.ids.size()) / seconds;
  const std::int64_t length = r.sequence->length();
  const auto total = static_cast<std::int64_t>(r.turn->ids.size());
  if (is_mark(r.turn->marks, length)) save(r, true);
  r.output().sink().on_prefill({length, total});
  if (slice.wants_logits) {
    if (r.prefill_s > 0)
      r.output().usage().prefill_tokens_per_s =
          static_cast<double>(total - r.from_store) / r.prefill_s;
    const std::optional<std::int32_t> id = r.chooser.next(slice.logits);
    if (id && !r.output().ended()) r.turn->ids.push_back(*id);
    r.decodes = true;
    r.checkpoint = length;
  }
  // The others first, next time.
  const auto it = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& other) { return other.get() == &r; });
  std::rotate(it, it + 1, running_.end());
}

void EngineLoop::save(Running& r, bool pin) {
  const std::int64_t length = r.sequence->length();
  if (length == 0 || !options_.store.enabled()) return;
  const auto ids =
      std::span<const text::TokenId>(r.turn->ids).first(static_cast<std::size_t>(length));
  if (!store_.holds(ids)) {
    try {
      Result<std::shared_ptr<const models::Snapshot>> snapshot = model_.save(*r.sequence);
      if (!snapshot) return;  // no memory for it; the next turn reads more again
      store_.put(ids, std::move(*snapshot));
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  if (!pin || !store_.holds(ids)) return;
  store_.pin(ids);
  unpin(r);
  r.pinned_length = length;
}

void EngineLoop::unpin(Running& r) {
  if (r.pinned_length > 0)
    store_.unpin(std::span<const text::TokenId>(r.turn->ids)
                     .first(static_cast<std::size_t>(r.pinned_length)));
  r.pinned_length = 0;
}

/// A turn that is cut goes on later from the tokens that were told, often a few fewer than those
/// that its last state holds: the start of a tag, half a letter. So that it then reads again no
/// more than kCheckpointSpacing of what it made itself, its state is saved now and then, the latest
/// only.
void EngineLoop::checkpoint(Running& r) {
  const std::int64_t length = r.sequence->length();
  if (!options_.store.enabled() || length < r.checkpoint + kCheckpointSpacing) return;
  const std::span<const text::TokenId> ids = r.turn->ids;
  save(r, false);
  if (!store_.holds(ids.first(static_cast<std::size_t>(length)))) return;  // no memory for it
  const std::int64_t before = std::exchange(r.checkpoint, length);
  store_.remove(ids.first(static_cast<std::size_t>(before)));
}

void EngineLoop::finish(Running& r) {
  if (r.sequence) save(r, false);
  unpin(r);
}

/// The system zeroes memory that is taken anew, which is a good part of the time that a warm turn's
/// first token takes. One turn's stays for the next.
void EngineLoop::spare(Running& r) {
  if (spare_ || !r.sequence) return;
  r.sequence->clear();
  spare_ = std::move(r.sequence);
}

bool EngineLoop::free_memory() {
  if (spare_) {
    spare_.reset();
    return true;
  }
  const StateStore::Stats before = store_.stats();
  store_.drop_unpinned();
  const StateStore::Stats after = store_.stats();
  return after.device_bytes + after.host_bytes < before.device_bytes + before.host_bytes;
}

}  // namespace ponder::run
