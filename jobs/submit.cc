// From a JobSpec to a committed row: the same request is found again, the prompt is counted
// exactly by the generator, and only then the row is written.
#include <fmt/core.h>

#include "engine/base/ids.h"
#include "jobs/continuation.h"
#include "jobs/queue_actor.h"

namespace ponder::jobs {
namespace {

constexpr const char* kNotCounted = "the prompt was not counted: the engine is not ready yet";

/// What a refused plan means: the caller's fault, or nobody to ask.
bool is_refusal(ErrorCode code) {
  return code == ErrorCode::context_length_exceeded || code == ErrorCode::bad_request ||
         code == ErrorCode::too_large || code == ErrorCode::unsupported_media ||
         code == ErrorCode::queue_full;  // too many prompts wait to be counted
}

Error about(std::string param, const std::string& id, ErrorCode code, std::string message,
            std::string hint = {}) {
  Error error{code, std::move(message), std::move(hint)};
  error.param = std::move(param);
  error.job_id = id;
  return error;
}
}  // namespace

Result<std::optional<Submitted>> QueueActor::existing(const JobRow& wanted, bool force_new) {
  if (!wanted.idempotency_key.empty()) {
    TRY(const std::optional<JobRow> row, store_->find_key(wanted.idempotency_key));
    if (!row) return std::optional<Submitted>();
    if (row->body_sha256 != wanted.body_sha256)
      return fail(about("idempotency_key", row->id, ErrorCode::idempotency_mismatch,
                        "this idempotency_key was used for another request",
                        "use a new key, or send the same body"));
    TRY(const JobRow current, row_of(row->id));
    return std::optional<Submitted>(
        {envelope_of(current, true, "this job exists already (same idempotency_key)"), false});
  }
  if (force_new) return std::optional<Submitted>();
  TRY(const std::optional<JobRow> row, store_->find_twin(wanted.workspace, wanted.body_sha256));
  if (!row) return std::optional<Submitted>();
  TRY(const JobRow current, row_of(row->id));
  return std::optional<Submitted>(
      {envelope_of(current, true,
                   "an identical job of this workspace is under way; force_new makes another"),
       false});
}

Result<std::optional<ParentJob>> QueueActor::parent_of(const JobSpec& spec) {
  if (spec.continue_from.empty()) return std::optional<ParentJob>();
  TRY(const JobRow row, row_of(spec.continue_from));
  if (row.state == State::expired)
    return fail(about("continue_from", row.id, ErrorCode::gone,
                      "the job to go on from has expired: " + row.summary,
                      "submit the whole question anew"));
  if (!is_terminal(row.state))
    return fail(about("continue_from", row.id, ErrorCode::not_terminal,
                      "the job to go on from has not ended yet",
                      fmt::format("wait for it: ponder wait {}", row.id)));
  TRY(const StoredText stored, text_of(row));
  if (row.state != State::completed && stored.text.size() == 0)
    return fail(about("continue_from", row.id, ErrorCode::bad_request,
                      "the job to go on from has no text", "submit the whole question anew"));
  TRY(const std::string body, store_->request(row.seq));
  TRY(StoredRequest request, decode_request(body));
  ParentJob parent;
  parent.id = row.id;
  parent.effort = row.effort_requested;
  parent.turn.messages = std::move(request.generation.chat.messages);
  parent.turn.reasoning = stored.text.of(Channel::reasoning);
  parent.turn.answer = stored.text.of(Channel::answer);
  return std::optional<ParentJob>(std::move(parent));
}

/// What a job that goes on from another's last token is made of, as its parent stands now. What is
/// said of the parent goes into the row.
Result<GenerationRequest> QueueActor::take_on(PendingSubmit& pending) {
  const JobSpec& spec = *pending.takes_on;
  TRY(const JobRow parent, row_of(spec.continue_from));
  TRY_VOID(refuse_continuation(parent, spec.mode));
  TRY(std::vector<Chunk> text, store_->chunks(parent));
  const ModelInfo model = generator_.status().model;
  if (!text.empty() && !is_model_of(parent, model)) {
    // A model that was loaded has an id; of one whose loading ended it only the file is known.
    const std::string id = text_fact(parent.facts, "model");
    return fail(about("continue_from", parent.id, ErrorCode::bad_request,
                      fmt::format("the job's tokens are of another model ({}) than the one that is "
                                  "loaded ({})",
                                  id.empty() ? text_fact(parent.facts, "model_path") : id,
                                  model.id.empty() ? model.path : model.id),
                      "load that model again, or use mode \"follow_up\""));
  }
  TRY(const std::string body, store_->request(parent.seq));
  TRY(StoredRequest request, decode_request(body));
  TRY(Continuation made, continue_job(spec, parent, std::move(request), std::move(text)));
  JobRow& row = pending.row;
  row.parent_id = parent.id;
  row.effort_requested = made.submission.effort;
  row.note = made.note;
  for (const char* fact : {"model", "model_path", "model_class", "effort", "effort_by"})
    if (const json::value* value = parent.facts.if_contains(fact)) row.facts[fact] = *value;
  JobText whole;
  for (const Chunk& chunk : made.text)
    whole.append(chunk.channel, chunk.text);
  row.reasoning_chars = whole.chars(Channel::reasoning);
  row.answer_chars = whole.chars(Channel::answer);
  pending.text = std::move(made.text);
  pending.carried_tokens = made.submission.request.carried.tokens();
  pending.request = encode_request(made.submission.request);
  return std::move(made.submission.request.generation);
}

Result<void> QueueActor::room_for_one(std::size_t pending) const {
  if (waiting_.size() + pending < static_cast<std::size_t>(options_.max_queued)) return {};
  return fail(ErrorCode::queue_full,
              fmt::format("the queue is full: {} jobs wait", options_.max_queued),
              "try again later, or cancel some: ponder ps --state queued");
}

void QueueActor::submit_now(CallId call, ReadySpec ready,
                            std::function<void(Result<Submitted>)> done) {
  const JobSpec& spec = ready.spec;
  PendingSubmit pending;
  pending.call = call;
  pending.force_new = spec.force_new;
  JobRow& row = pending.row;
  GenerationRequest request;
  // An answer at once, or nothing: then the prompt is to be counted.
  auto at_once = [&]() -> Result<std::optional<Submitted>> {
    row.lane = spec.kind;
    row.workspace = spec.workspace;
    row.label = spec.label;
    row.idempotency_key = spec.idempotency_key;
    row.pinned = spec.pin;
    row.body_sha256 = ready.hash;
    if (spec.deadline_s)
      row.deadline_ms =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(*spec.deadline_s * 1000));
    TRY(std::optional<Submitted> known, existing(row, spec.force_new));
    if (known) return known;
    TRY_VOID(room_for_one(pending_submits_.size()));
    if (spec.mode != Mode::follow_up) {
      pending.takes_on = spec;
      TRY(request, take_on(pending));
    } else {
      TRY(const std::optional<ParentJob> parent, parent_of(spec));
      if (parent) {
        row.parent_id = parent->id;
        ready.alone = prepare(spec, parent);
        if (*ready.alone) ready.request = encode_request((*ready.alone)->request);
      }
      TRY(Submission submission, std::move(*ready.alone));
      row.effort_requested = submission.effort;
      pending.request = std::move(ready.request);
      request = std::move(submission.request.generation);
    }
    if (!status().store_ok) {  // known to fail: not worth the counting
      Result<void> probed = store_->probe();
      if (!stored(probed)) return fail(probed.error());
    }
    return std::optional<Submitted>();
  };
  Result<std::optional<Submitted>> answer = at_once();
  if (!answer || *answer) {
    if (!calls_.close(call)) return;
    return answer ? done(std::move(**answer)) : done(fail(answer.error()));
  }
  row.facts[kPreview] = preview_of(spec, request.chat.messages);
  pending.done = std::move(done);
  const std::uint64_t number = next_pending_++;
  pending.timer = thread_.after(options_.plan_timeout_ms, [this, number] {
    finish_submit(number, std::nullopt, kNotCounted);
  });
  pending_submits_.emplace(number, std::move(pending));
  const double wait_s = static_cast<double>(options_.plan_timeout_ms) / 1000;
  generator_.plan_within(
      wait_s, std::move(request), [door = door_, number](Result<PromptPlan> plan) {
        auto shared = std::make_shared<Result<PromptPlan>>(std::move(plan));
        door->post([number, shared](QueueActor& actor) { actor.on_planned(number, *shared); });
      });
}

void QueueActor::on_planned(std::uint64_t number, Result<PromptPlan> plan) {
  if (plan) return finish_submit(number, *plan, {});
  if (!is_refusal(plan.error().code))
    return finish_submit(number, std::nullopt,
                         fmt::format("{} ({})", kNotCounted, plan.error().message));
  const auto found = pending_submits_.find(number);
  if (found == pending_submits_.end()) return;
  PendingSubmit pending = std::move(found->second);
  pending_submits_.erase(found);
  thread_.cancel(pending.timer);
  if (calls_.close(pending.call)) pending.done(fail(plan.error()));
}

void QueueActor::finish_submit(std::uint64_t number, const std::optional<PromptPlan>& plan,
                               const std::string& note) {
  const auto found = pending_submits_.find(number);
  if (found == pending_submits_.end()) return;
  PendingSubmit pending = std::move(found->second);
  pending_submits_.erase(found);
  thread_.cancel(pending.timer);
  if (!calls_.is_open(pending.call)) return;  // given up: no job
  if (plan) note_plan(pending.row.facts, *plan);
  if (plan && pending.carried_tokens >= plan->total_budget) {
    Error full{
        ErrorCode::context_length_exceeded,
        fmt::format("the job has used {} tokens, and the budgets and the window hold no more",
                    pending.carried_tokens),
        "give it larger budgets, or give the daemon a larger --ctx"};
    full.details = {{"n_prompt_tokens", plan->prompt_tokens},
                    {"n_reserved", pending.carried_tokens + 1},
                    {"n_ctx", plan->n_ctx}};
    return answer_submit(pending, fail(std::move(full)));
  }
  pending.row.note = join_notes(pending.row.note, note);
  if (pending.takes_on) return take_over(std::move(pending));
  answer_submit(pending, commit(pending));
}

void QueueActor::answer_submit(PendingSubmit& pending, Result<Submitted> answer) {
  if (calls_.close(pending.call)) pending.done(std::move(answer));
}

/// Ends the parent, if it has not ended yet, and goes on from what it came to. Once the parent is
/// asked to end, the new job is made, also if nobody waits for it any more.
void QueueActor::take_over(PendingSubmit given) {
  auto pending = std::make_shared<PendingSubmit>(std::move(given));
  const std::string id = pending->takes_on->continue_from;
  const auto make = [this, pending] {
    const std::string note = pending->row.note;  // of the plan as well
    const Result<GenerationRequest> made = take_on(*pending);
    if (!made) return answer_submit(*pending, fail(made.error()));
    pending->row.note = note;
    answer_submit(*pending, commit(*pending));
  };
  if (const auto found = running_.find(id); found != running_.end())
    return end_running(*found->second, calls_.open(), [make](const auto&) { make(); });
  if (waiting_.contains(id))
    if (const Result<void> ended = end_queued(id); !ended)
      return answer_submit(*pending, fail(ended.error()));
  make();
}

Result<Submitted> QueueActor::commit(PendingSubmit& pending) {
  // Another submit may have come first while the prompt was counted.
  TRY(std::optional<Submitted> known, existing(pending.row, pending.force_new));
  if (known) return std::move(*known);
  TRY_VOID(room_for_one(0));
  if (!is_owner()) return fail(ErrorCode::loading, "the daemon is being replaced", "try again");
  JobRow& row = pending.row;
  row.created_ms = clock_.wall_ms();
  row.id = new_job_id(row.created_ms);
  Result<void> inserted = store_->insert(row, pending.request, std::move(pending.text));
  if (!stored(inserted)) return fail(inserted.error());
  const std::string id = row.id;
  enqueue(std::move(row), now());
  refresh_status();
  look_at_engine();
  // The caller hears of the row as it was committed; it is started after that.
  Submitted out{envelope_of(waiting_.at(id).row, false), true};
  thread_.post([this] { schedule(); });
  return out;
}

}  // namespace ponder::jobs
