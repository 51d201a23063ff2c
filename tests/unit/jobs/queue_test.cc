// The life of a job through the door. Long file: one fixture, each promise of the header once.
#include <thread>

#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

using Queue = QueueTest;

json::object batch(const char* task = "t") {
  return {{"task", task}, {"workspace", "/w"}};
}
json::object ask(const char* task = "q") {
  return {{"kind", "ask"}, {"task", task}, {"workspace", "/w"}};
}

TEST_F(Queue, AJobRunsToItsEndAndItsAnswerIsThere) {
  open();
  auto submitted = submit(batch());
  ASSERT_TRUE(submitted) << submitted.error().message;
  EXPECT_TRUE(submitted->created);
  EXPECT_EQ(text_of(submitted->envelope, "state"), "queued");
  EXPECT_EQ(submitted->envelope.at("position"), 1);
  EXPECT_EQ(submitted->envelope.at("tokens").at("prompt"), 10);
  EXPECT_EQ(submitted->envelope.at("tokens").at("reserved"), 600);
  const std::string id = text_of(submitted->envelope, "job_id");
  const auto run = generator.run(0);
  EXPECT_EQ(to_string(*run.request.chat.effort), "xhigh");
  EXPECT_TRUE(run.request.sampling.seed);
  EXPECT_TRUE(run.request.budgets.defaulted);
  generator.set_degraded({"slow"});
  generator.complete(run, "forty-two");
  const json::object done = ended(id);
  EXPECT_EQ(done.at("degraded"), json::array{"slow"});
  EXPECT_EQ(text_of(done, "state"), "completed");
  EXPECT_EQ(text_of(done, "answer"), "forty-two");
  EXPECT_EQ(done.at("total_chars"), 9);
  EXPECT_EQ(done.at("truncated"), false);
  EXPECT_EQ(done.at("attempt"), 1);
  EXPECT_EQ(text_of(done, "model"), "fake");
  EXPECT_EQ(text_of(done, "effort_by"), "template");
  EXPECT_EQ(text_of(done.at("next").as_object(), "shell"), "ponder result " + id);
  EXPECT_EQ(result(id)->text, "forty-two");
  EXPECT_EQ(result(id, Part::reasoning)->text, "let me think");
}

TEST_F(Queue, TheEnvelopeHasEveryFieldOfTheContract) {
  open();
  const json::object e = submit(batch())->envelope;
  for (const char* field : {"job_id",
                            "state",
                            "reason",
                            "phase",
                            "prefill_done",
                            "prefill_total",
                            "waiting_for",
                            "label",
                            "workspace",
                            "created_at",
                            "started_at",
                            "ended_at",
                            "queue_s",
                            "run_s",
                            "effort_requested",
                            "effort",
                            "effort_by",
                            "tokens",
                            "cache",
                            "ttft_s",
                            "prefill_tokens_per_s",
                            "tokens_per_s",
                            "drafted",
                            "accepted",
                            "answer",
                            "reasoning_chars",
                            "total_chars",
                            "next_offset",
                            "truncated",
                            "forced_answer",
                            "position",
                            "eta_s",
                            "energy_j",
                            "model",
                            "model_class",
                            "device",
                            "degraded",
                            "build",
                            "parent_id",
                            "attempt",
                            "pinned",
                            "note",
                            "error",
                            "next"})
    EXPECT_TRUE(e.contains(field)) << field;
  for (const char* field : {"prompt", "cached", "reasoning", "answer", "reserved"})
    EXPECT_TRUE(e.at("tokens").as_object().contains(field)) << field;
  for (const char* field : {"path", "miss_reason", "diverged_at"})
    EXPECT_TRUE(e.at("cache").as_object().contains(field)) << field;
  EXPECT_TRUE(e.at("error").is_null());
  EXPECT_TRUE(e.at("answer").is_null());
  EXPECT_EQ(e.at("next").at("mcp").at("tool"), "status");
  EXPECT_EQ(e.at("next").at("mcp").at("arguments").at("wait_s"), 50);
  EXPECT_EQ(text_of(e.at("next").as_object(), "shell"), "ponder wait " + text_of(e, "job_id"));
}

TEST_F(Queue, EveryFinishBecomesWhatTheContractSays) {
  open();
  const struct {
    Finish finish;
    std::optional<ErrorCode> code;
    const char* state;
    const char* reason;
  } cases[] = {
      {Finish::end_token, {}, "completed", "(null)"},
      {Finish::stop_string, {}, "completed", "(null)"},
      {Finish::output_limit, {}, "incomplete", "output_limit"},
      {Finish::reasoning_exhausted, {}, "incomplete", "reasoning_exhausted"},
      {Finish::repetition, {}, "incomplete", "repetition"},
      {Finish::stream_lost, {}, "incomplete", "stream_lost"},
      {Finish::stalled, {}, "incomplete", "stalled"},
      {Finish::failed, ErrorCode::engine_error, "failed", "engine_error"},
      {Finish::failed, ErrorCode::internal, "failed", "engine_error"},
      {Finish::failed, ErrorCode::model_missing, "failed", "model_missing"},
      {Finish::failed, ErrorCode::bad_request, "failed", "bad_request"},
      {Finish::failed, ErrorCode::context_length_exceeded, "failed", "bad_request"},
  };
  std::size_t n = 0;
  for (const auto& c : cases) {
    json::object body = batch();
    body["force_new"] = true;
    const std::string id = submit_id(body);
    const auto run = generator.run(n++);
    generator.begin(run);
    generator.say(run, Channel::answer, "partial");
    std::optional<Error> error;
    if (c.code) error = Error{*c.code, "it broke", "mend it"};
    generator.end(run, c.finish, error);
    const json::object e = ended(id);
    EXPECT_EQ(text_of(e, "state"), c.state) << to_string(c.finish);
    EXPECT_EQ(text_of(e, "reason"), c.reason) << to_string(c.finish);
    EXPECT_EQ(result(id, Part::partial)->text, "partial");
    if (std::string(c.state) == "completed") continue;
    // A cut answer never looks like a whole one.
    EXPECT_TRUE(e.at("answer").is_null());
    EXPECT_EQ(e.at("truncated"), true);
    EXPECT_EQ(result(id).error().code, ErrorCode::not_completed);
    EXPECT_EQ(text_of(e.at("next").as_object(), "shell"), "ponder result --part partial " + id);
    if (c.code) {
      EXPECT_EQ(text_of(e.at("error").as_object(), "code"), to_string(*c.code));
    }
  }
}

TEST_F(Queue, AJobThatKillsTheEngineThreeTimesIsPoison) {
  open();
  const std::string id = submit_id(batch());
  for (std::size_t n = 0; n < 3; ++n) {
    generator.end(generator.run(n), Finish::worker_died);
    if (n == 2) break;
    advance(100);
    generator.run(n + 1);
    EXPECT_EQ(get(id)->at("attempt"), static_cast<std::int64_t>(n) + 2);
  }
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "state"), "failed");
  EXPECT_EQ(text_of(e, "reason"), "poison");
  EXPECT_EQ(e.at("attempt"), 3);
}

TEST_F(Queue, TheLastAttemptIsMadeAloneSoThatOnlyTheKillerIsPoison) {
  open();
  const std::string question = submit_id(ask());
  generator.run(0);
  const std::string killer = submit_id(batch());
  generator.run(1);
  for (const std::size_t n : {0u, 2u}) {  // the engine dies under both, twice
    generator.end(generator.run(n), Finish::worker_died);
    generator.end(generator.run(n + 1), Finish::worker_died);
    while (state(question) != "queued" || state(killer) != "queued")
      std::this_thread::yield();
    advance(100);
    generator.run(n + 2);
  }
  advance(5000);
  EXPECT_EQ(state(question), "running");
  EXPECT_EQ(state(killer), "queued") << "nothing runs beside a last attempt";
  generator.complete(generator.run(4), "an answer");
  EXPECT_EQ(text_of(ended(question), "state"), "completed");
  generator.end(generator.run(5), Finish::worker_died);
  EXPECT_EQ(text_of(ended(killer), "reason"), "poison");
}

TEST_F(Queue, ALastAttemptBeyondItsDeathsSharesAgain) {
  open();
  const std::string id = submit_id(batch());
  for (std::size_t n = 0; n < 2; ++n) {
    generator.end(generator.run(n), Finish::worker_died);
    while (state(id) != "queued")
      std::this_thread::yield();
    advance(100);
  }
  const auto last = generator.run(2);
  const std::string question = submit_id(ask());
  advance(60'000);
  EXPECT_EQ(state(question), "queued");
  generator.say(last, Channel::answer, "new");
  advance(1000);
  EXPECT_EQ(state(question), "queued");
  advance(11'000);
  EXPECT_EQ(state(question), "running");
}

TEST_F(Queue, WithoutMemoryAJobIsTriedOnceMoreAloneAndOnlyThenFailed) {
  options.max_running_batch = 2;
  open();
  const Error no_memory{ErrorCode::out_of_memory, "no memory", "a smaller prompt"};
  json::object body = batch();
  body["force_new"] = true;
  const std::string hungry = submit_id(body), beside = submit_id(body);
  for (const std::size_t n : {0u, 1u})
    generator.end(generator.run(n), Finish::failed, no_memory);
  while (state(hungry) != "queued" || state(beside) != "queued")
    std::this_thread::yield();
  EXPECT_NE(text_of(*get(hungry), "note").find("once more, alone"), std::string::npos);
  advance(100);
  const auto alone = generator.run(2);
  advance(5000);
  EXPECT_EQ(state(hungry), "running");
  EXPECT_EQ(state(beside), "queued") << "nothing runs beside it";
  generator.end(alone, Finish::failed, no_memory);
  const json::object e = ended(hungry);
  EXPECT_EQ(text_of(e, "state"), "failed");
  EXPECT_EQ(text_of(e, "reason"), "out_of_memory");
  EXPECT_EQ(e.at("attempt"), 1);
  advance(5000);
  generator.complete(generator.run(3));
  EXPECT_EQ(text_of(ended(beside), "state"), "completed");
}

TEST_F(Queue, NewBoundsHoldAtOnce) {
  options.max_running_batch = 1;
  open();
  json::object body = batch();
  body["force_new"] = true;
  const std::string first = submit_id(body), second = submit_id(body);
  generator.run(0);
  EXPECT_EQ(state(second), "queued");
  jobs::Options wider = options;
  wider.max_running_batch = 2;
  wider.max_queued = 7;
  queue->reconfigure(wider);
  generator.run(1);
  EXPECT_EQ(state(second), "running");
  EXPECT_EQ(queue->status().limit, 7);
}

TEST_F(Queue, AWorkerKilledFromOutsideCostsNoAttempt) {
  open();
  const std::string id = submit_id(batch());
  for (std::size_t n = 0; n < 5; ++n) {
    generator.end(generator.run(n), n % 2 ? Finish::worker_killed : Finish::failed,
                  n % 2 ? std::optional<Error>() : Error{ErrorCode::device_lost, "gone"});
    // The end is on disk before the clock lets it start again.
    while (state(id) != "queued")
      std::this_thread::yield();
    advance(100);
  }
  generator.complete(generator.run(5));
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "state"), "completed");
  EXPECT_EQ(e.at("attempt"), 1);
}

TEST_F(Queue, ARepeatedJobHasTheSameSeedAndNeverGoesBackwards) {
  options.resume_after_crash = false;
  open();
  const std::string id = submit_id(batch());
  auto run = generator.run(0);
  const auto seed = run.request.sampling.seed;
  generator.begin(run);
  generator.say(run, Channel::reasoning, "one two three");
  generator.end(run, Finish::worker_killed);
  while (state(id) != "queued")
    std::this_thread::yield();
  EXPECT_EQ(result(id, Part::reasoning)->text, "one two three");
  advance(100);
  run = generator.run(1);
  EXPECT_EQ(run.request.sampling.seed, seed);
  generator.begin(run);
  generator.say(run, Channel::reasoning, "one");
  EXPECT_EQ(result(id, Part::reasoning)->text, "one two three");
  generator.say(run, Channel::reasoning, " two three four");
  generator.say(run, Channel::answer, "A");
  generator.end(run, Finish::end_token);
  EXPECT_EQ(text_of(ended(id), "state"), "completed");
  EXPECT_EQ(result(id, Part::reasoning)->text, "one two three four");
}

TEST_F(Queue, ATextThatComesOutDifferentlyReplacesTheStoredOne) {
  options.resume_after_crash = false;
  open();
  const std::string id = submit_id(batch());
  auto run = generator.run(0);
  generator.say(run, Channel::answer, "one two");
  generator.end(run, Finish::worker_killed);
  while (state(id) != "queued")
    std::this_thread::yield();
  advance(100);
  run = generator.run(1);
  generator.say(run, Channel::answer, "one too many");
  generator.end(run, Finish::end_token);
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "answer"), "one too many");
  EXPECT_NE(text_of(e, "note").find("differs"), std::string::npos);
}

TEST_F(Queue, CancelEndsAQueuedAndARunningJobAndKeepsThePartial) {
  open();
  const std::string first = submit_id(batch("a"));
  const std::string second = submit_id(batch("b"));
  const auto run = generator.run(0);
  generator.begin(run);
  generator.say(run, Channel::answer, "some");
  EXPECT_EQ(text_of(*cancel(second), "state"), "cancelled");
  const auto e = cancel(first);
  ASSERT_TRUE(e);
  EXPECT_EQ(text_of(*e, "state"), "cancelled");
  EXPECT_EQ(result(first, Part::partial)->text, "some");
  EXPECT_EQ(text_of(*cancel(first), "state"), "cancelled");  // idempotent
  EXPECT_EQ(cancel("nosuchjob").error().code, ErrorCode::job_unknown);
  EXPECT_EQ(generator.runs(), 1u);
}

TEST_F(Queue, CancelWinsOverAnEndThatComesMeanwhile) {
  generator.end_on_cancel = false;
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  auto cancelled = cancel_later(id);
  generator.wait_cancels(1);
  generator.end(run, Finish::end_token);
  EXPECT_EQ(text_of(*await(cancelled), "state"), "cancelled");
}

TEST_F(Queue, AGeneratorThatIgnoresCancelDoesNotHoldTheJob) {
  generator.end_on_cancel = false;
  open();
  const std::string id = submit_id(batch("a"));
  const auto run = generator.run(0);
  auto cancelled = cancel_later(id);
  generator.wait_cancels(1);
  advance(options.end_grace_ms);
  EXPECT_EQ(text_of(*await(cancelled), "state"), "cancelled");
  // Its place is still taken until the generator lets go.
  const std::string next = submit_id(batch("b"));
  advance(10);
  EXPECT_EQ(state(next), "queued");
  generator.end(run, Finish::cancelled);
  generator.complete(generator.run(1));
  EXPECT_EQ(text_of(ended(next), "state"), "completed");
}

TEST_F(Queue, TheDeadlineCountsRunningTimeOverAttempts) {
  open();
  json::object body = batch();
  body["deadline_s"] = 10;
  const std::string id = submit_id(body);
  auto run = generator.run(0);
  generator.begin(run);
  generator.say(run, Channel::answer, "so far");
  advance(6000);
  generator.end(run, Finish::worker_killed);
  while (state(id) != "queued")
    std::this_thread::yield();
  advance(20'000);  // waiting is not running
  run = generator.run(1);
  advance(3900);
  EXPECT_EQ(state(id), "running");
  advance(200);
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "state"), "incomplete");
  EXPECT_EQ(text_of(e, "reason"), "deadline");
  EXPECT_EQ(result(id, Part::partial)->text, "so far");
}

TEST_F(Queue, ADeadlineThatAsksForAnAnswerGetsOne) {
  open();
  json::object body = batch();
  body["deadline_s"] = 10;
  body["on_limit"] = "answer";
  body["schema"] = json::object{{"type", "integer"}};
  const std::string id = submit_id(body);
  const auto run = generator.run(0);
  EXPECT_EQ(run.request.on_limit, ponder::OnLimit::answer);
  EXPECT_EQ(to_json(run.request.schema), R"({"type":"integer"})");
  generator.begin(run);
  generator.say(run, Channel::reasoning, "hm");
  advance(10'100);
  generator.wait_answers(1);
  EXPECT_EQ(state(id), "running");
  generator.say(run, Channel::answer, "7");
  Ended closed{Finish::end_token, {}, {}, true};
  run.sink->on_ended(closed);
  const json::object e = ended(id);
  EXPECT_EQ(text_of(e, "state"), "completed");
  EXPECT_EQ(e.at("forced_answer"), true);
}

// T42, ollama-python#523: an answer outside its schema passed for a good one.
TEST_F(Queue, TheAnswerIsHeldAgainstItsSchema) {
  open();
  json::object body = batch();
  body["schema"] = {{"type", "object"}, {"required", {"x"}}};
  const std::string good = submit_id(body);
  EXPECT_NE(generator.run(0).request.chat.messages.at(0).content.find("\"required\""),
            std::string::npos);
  generator.complete(generator.run(0), "```json\n{\"x\": 1}\n```");
  EXPECT_EQ(text_of(ended(good), "state"), "completed");
  const std::string bad = submit_id(body);
  generator.complete(generator.run(1), "{\"y\": 1}");
  const json::object e = ended(bad);
  EXPECT_EQ(text_of(e, "state"), "incomplete");
  EXPECT_EQ(text_of(e, "reason"), "schema_invalid");
  EXPECT_NE(text_of(e, "note"), "(null)");
  body["schema"] = {{"pattern", "a"}};
  EXPECT_EQ(submit(body).error().param, "schema");
}

TEST_F(Queue, AToolCallOfAJobStaysInItsText) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  run.sink->on_tool_call({{"c1", "look", {{"a", 1}}}});
  generator.end(run, Finish::end_token);
  EXPECT_EQ(text_of(ended(id), "answer"),
            "<tool_call>\n{\"name\":\"look\",\"arguments\":{\"a\":1}}\n</tool_call>");
}

// --- submit -------------------------------------------------------------------------------------

// T16, ai-dev-kit#65, mcp-gateway#56: a retry after a time-out made a second job.
TEST_F(Queue, FiftyParallelSubmittersWithOneKeyMakeOneJob) {
  open();
  std::vector<std::thread> threads;
  std::vector<std::string> ids(50);
  std::atomic<int> created = 0;
  for (std::size_t i = 0; i < ids.size(); ++i)
    threads.emplace_back([&, i] {
      json::object body = batch();
      body["idempotency_key"] = "k";
      auto r = submit(body);
      if (!r) return;
      ids[i] = text_of(r->envelope, "job_id");
      created += r->created;
    });
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(created, 1);
  for (const std::string& id : ids)
    EXPECT_EQ(id, ids[0]);
}

TEST_F(Queue, AKeyStandsForOneBodyAlsoAfterTheEnd) {
  open();
  json::object body = batch();
  body["idempotency_key"] = "k";
  const std::string id = submit_id(body);
  generator.complete(generator.run(0));
  ended(id);
  auto again = submit(body);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->created);
  EXPECT_EQ(text_of(again->envelope, "answer"), "the answer");
  EXPECT_NE(text_of(again->envelope, "note"), "(null)");
  body["task"] = "other";
  const auto refused = submit(body);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::idempotency_mismatch);
  EXPECT_EQ(refused.error().job_id, id);
}

TEST_F(Queue, ALiveTwinOfTheWorkspaceIsFoundUnlessForced) {
  open();
  const std::string id = submit_id(batch());
  auto twin = submit(batch());
  EXPECT_FALSE(twin->created);
  EXPECT_EQ(text_of(twin->envelope, "job_id"), id);
  json::object other = batch();
  other["workspace"] = "/elsewhere";
  EXPECT_NE(submit_id(other), id);
  json::object forced = batch();
  forced["force_new"] = true;
  EXPECT_NE(submit_id(forced), id);
  generator.complete(generator.run(0));
  ended(id);
  EXPECT_NE(submit_id(batch()), "");
}

TEST_F(Queue, WhereTooManyPromptsWaitToBeCountedNoneIsAcceptedUncounted) {
  generator.planner = [](const auto&) -> Result<PromptPlan> {
    return fail(ErrorCode::queue_full, "too many prompts wait to be counted already");
  };
  open();
  const auto refused = submit(batch());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full);
}

TEST_F(Queue, AFullQueueRefuses) {
  options.max_queued = 2;
  open();
  submit_id(batch("a"));
  generator.run(0);  // runs, so it does not wait
  submit_id(batch("b"));
  submit_id(batch("c"));
  const auto refused = submit(batch("d"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full);
  EXPECT_EQ(queue->status().batch, 2);
  EXPECT_EQ(queue->status().limit, 2);
}

TEST_F(Queue, AnOverflowIsRefusedWithItsNumbersBeforeAnyRow) {
  generator.planner = [](const auto&) -> Result<PromptPlan> {
    Error error{ErrorCode::context_length_exceeded, "too long"};
    error.details = {{"n_prompt_tokens", 9}, {"n_reserved", 2}, {"n_ctx", 10}};
    return fail(error);
  };
  open();
  const auto refused = submit(batch());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_length_exceeded);
  EXPECT_EQ(refused.error().details.at("n_ctx"), 10);
  EXPECT_TRUE(list({})->jobs.empty());
}

TEST_F(Queue, WithoutAnEngineToAskTheJobIsAcceptedUncounted) {
  generator.set_state(GeneratorState::loading, "reading weights");
  generator.planner = [](const auto&) -> Result<PromptPlan> {
    return fail(ErrorCode::loading, "not yet");
  };
  open();
  auto submitted = submit(batch());
  ASSERT_TRUE(submitted);
  EXPECT_TRUE(submitted->envelope.at("tokens").at("prompt").is_null());
  EXPECT_NE(text_of(submitted->envelope, "note").find("not counted"), std::string::npos);
  nudge();
  const auto e = get(text_of(submitted->envelope, "job_id"));
  EXPECT_EQ(text_of(*e, "waiting_for"), "upstream");
  generator.set_state(GeneratorState::ready);
  advance(200);
  generator.complete(generator.run(0));
  EXPECT_EQ(text_of(ended(text_of(*e, "job_id")), "state"), "completed");
}

TEST_F(Queue, APlanThatNeverComesDoesNotHoldTheSubmit) {
  generator.hold_plans = true;
  open();
  auto promise = std::make_shared<std::promise<Result<Submitted>>>();
  auto future = promise->get_future();
  queue->submit(*parse_job_spec(batch()),
                [promise](Result<Submitted> r) { promise->set_value(r); });
  generator.wait_held_plans(1);
  // Whoever is to count it knows for how long.
  EXPECT_EQ(generator.planned_within(), std::vector{options.plan_timeout_ms / 1000.0});
  advance(options.plan_timeout_ms);
  auto submitted = await(future);
  ASSERT_TRUE(submitted);
  EXPECT_NE(text_of(submitted->envelope, "note").find("not counted"), std::string::npos);
  generator.release_plans(PromptPlan{});  // late: ignored
  nudge();
}

TEST_F(Queue, AForgottenSubmitMakesNoJob) {
  generator.hold_plans = true;
  open();
  const CallId call =
      queue->submit(*parse_job_spec(batch()), [](Result<Submitted>) { ADD_FAILURE() << "called"; });
  generator.wait_held_plans(1);
  queue->forget(call);
  generator.release_plans(PromptPlan{});
  nudge();
  EXPECT_TRUE(list({})->jobs.empty());
}

TEST_F(Queue, AFailedEngineFailsEveryJobAtOnce) {
  generator.set_state(GeneratorState::failed, "no such model");
  generator.script = [this](const FakeGenerator::Run& run) {
    generator.end(run, Finish::failed, Error{ErrorCode::model_missing, "no such model"});
  };
  open();
  for (const json::object& body : {ask(), batch("one"), batch("two")}) {
    const json::object job = ended(submit_id(body));
    EXPECT_EQ(text_of(job, "state"), "failed");
    EXPECT_EQ(text_of(job, "reason"), "model_missing");
  }
}

TEST_F(Queue, AFollowUpCarriesTheConversationAndItsEffort) {
  open();
  json::object body = batch("what is six times seven?");
  body["effort"] = "low";
  body["system"] = "be brief";
  const std::string parent = submit_id(body);
  json::object next = batch("and doubled?");
  next["continue_from"] = parent;
  EXPECT_EQ(submit(next).error().code, ErrorCode::not_terminal);
  generator.complete(generator.run(0), "42");
  ended(parent);
  auto submitted = submit(next);
  ASSERT_TRUE(submitted) << submitted.error().message;
  EXPECT_EQ(text_of(submitted->envelope, "parent_id"), parent);
  EXPECT_EQ(text_of(submitted->envelope, "effort_requested"), "low");
  const auto messages = generator.run(1).request.chat.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2].content, "42");
  EXPECT_EQ(messages[3].content, "and doubled?");
  next["continue_from"] = "nosuchjob";
  EXPECT_EQ(submit(next).error().code, ErrorCode::job_unknown);
  next["continue_from"] = parent;
  next["mode"] = "resume";
  EXPECT_EQ(submit(next).error().param, "mode");
}

// --- waits --------------------------------------------------------------------------------------

TEST_F(Queue, AWaitWakesOnAChangeOfStateOrPhaseAndNotOnText) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  nudge();
  auto wait = get_later(id, 60'000);
  generator.begin(run);
  generator.say(run, Channel::reasoning, "a");
  EXPECT_EQ(text_of(*await(wait), "phase"), "thinking");
  wait = get_later(id, 60'000);
  generator.say(run, Channel::reasoning, "b");
  advance(1000);
  EXPECT_EQ(wait.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  generator.say(run, Channel::answer, "c");
  EXPECT_EQ(text_of(*await(wait), "phase"), "answering");
  wait = get_later(id, 60'000);
  generator.end(run, Finish::end_token);
  EXPECT_EQ(text_of(*await(wait), "state"), "completed");
}

TEST_F(Queue, PrefillIsReportedInTheEnvelope) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  Started started;
  started.plan = {100, 1000, 1, 1, 2, "xhigh", "template"};
  started.cached_tokens = 20;
  run.sink->on_started(started);
  run.sink->on_prefill({60, 100});
  const json::object e = *get(id);
  EXPECT_EQ(text_of(e, "phase"), "prefill");
  EXPECT_EQ(e.at("prefill_done"), 60);
  EXPECT_EQ(e.at("prefill_total"), 100);
  EXPECT_EQ(e.at("tokens").at("cached"), 20);
  EXPECT_EQ(e.at("cache").at("path"), "cold");
}

TEST_F(Queue, TheEnvelopeSaysWhereThePromptLeftWhatWasReadBefore) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  Started started;
  started.plan = {100, 1000, 1, 1, 2, "xhigh", "template"};
  started.cached_tokens = 20;
  started.cache_path = "device";
  started.miss_reason = "diverged";
  started.diverged_at = 31;
  run.sink->on_started(started);
  generator.say(run, Channel::answer, "yes");
  EXPECT_EQ(get(id)->at("cache").at("diverged_at"), 31);
  generator.end(run, Finish::end_token);
  const json::object e = ended(id);
  EXPECT_EQ(e.at("cache").at("path"), "device");
  EXPECT_EQ(e.at("cache").at("miss_reason"), "diverged");
  EXPECT_EQ(e.at("cache").at("diverged_at"), 31);
}

TEST_F(Queue, TwoThousandWaitersAreAllAnswered) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  nudge();
  std::vector<std::future<Result<json::object>>> bounded, woken;
  for (int i = 0; i < 1000; ++i)
    bounded.push_back(get_later(id, 1000 + i % 10));
  for (int i = 0; i < 1000; ++i)
    woken.push_back(get_later(id, 100'000));
  advance(2000);
  for (auto& f : bounded)
    EXPECT_EQ(text_of(*await(f), "state"), "running");
  for (auto& f : woken)
    EXPECT_EQ(f.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  generator.end(run, Finish::end_token);
  for (auto& f : woken)
    EXPECT_EQ(text_of(*await(f), "state"), "completed");
}

TEST_F(Queue, AForgottenWaitIsNeverAnswered) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  const CallId call = queue->get(id, 1000, [](auto) { ADD_FAILURE() << "called"; });
  queue->forget(call);
  advance(2000);
  generator.end(run, Finish::end_token);
  ended(id);
}

TEST_F(Queue, AnUnknownJobIsNamedAsSuch) {
  open();
  EXPECT_EQ(get("nosuchjob").error().code, ErrorCode::job_unknown);
  EXPECT_EQ(get("nosuchjob").error().job_id, "nosuchjob");
  EXPECT_EQ(result("nosuchjob").error().code, ErrorCode::job_unknown);
  EXPECT_EQ(remove("nosuchjob").error().code, ErrorCode::job_unknown);
}

// --- order, turns -------------------------------------------------------------------------------

TEST_F(Queue, AnAskRunsBesideABatchJobAndBeforeWaitingOnes) {
  open();
  submit_id(batch("a"));
  generator.run(0);
  const std::string waiting = submit_id(batch("b"));
  const std::string question = submit_id(ask());
  generator.run(1);
  nudge();
  EXPECT_EQ(state(question), "running");
  EXPECT_EQ(state(waiting), "queued");
  EXPECT_EQ(get(waiting)->at("position"), 1);
}

TEST_F(Queue, PositionsCountWhatGoesBefore) {
  open();
  submit_id(batch("a"));
  generator.run(0);
  const std::string second = submit_id(batch("b"));
  const std::string third = submit_id(batch("c"));
  EXPECT_EQ(get(second)->at("position"), 1);
  EXPECT_EQ(get(third)->at("position"), 2);
  EXPECT_TRUE(get(second)->at("eta_s").at("p50").is_null());
  cancel(second);
  EXPECT_EQ(get(third)->at("position"), 1);
}

TEST_F(Queue, TimesAreExpectedFromEarlierJobs) {
  open();
  const std::string first = submit_id(batch("a"));
  generator.run(0);
  advance(8000);
  generator.complete(generator.run(0));
  ended(first);
  submit_id(batch("b"));
  generator.run(1);
  nudge();
  const std::string waiting = submit_id(batch("c"));
  EXPECT_EQ(get(waiting)->at("eta_s").at("p50"), 16.0);
  reopen_after_crash();  // also from what is stored
  const auto page = list({});
  EXPECT_FALSE(page->jobs.at(0).at("eta_s").at("p90").is_null());
}

class TurnRecorder : public OutputSink {
 public:
  void on_started(const Started&) override {}
  void on_prefill(const PrefillProgress&) override {}
  void on_delta(const Delta& d) override { text += d.text; }
  void on_tool_call(const ToolCallMade&) override {}
  void on_ended(const Ended& e) override { ended.set_value(e); }
  std::string text;
  std::promise<Ended> ended;
};

TEST_F(Queue, TurnsTakeInteractivePlacesAndLeaveNoRow) {
  options.max_turns_waiting = 1;
  open();
  std::vector<std::shared_ptr<TurnRecorder>> turns;
  std::vector<CallId> calls;
  for (int i = 0; i < 4; ++i) {
    turns.push_back(std::make_shared<TurnRecorder>());
    calls.push_back(queue->start_turn({}, turns.back()));
  }
  nudge();
  EXPECT_EQ(generator.runs(), 2u);
  EXPECT_EQ(queue->status().ask, 1);
  EXPECT_EQ(queue->status().running, 2);
  EXPECT_TRUE(queue->status().turns_full);
  auto refused = turns[3]->ended.get_future();
  const Ended full = await(refused);
  EXPECT_EQ(full.finish, Finish::failed);
  EXPECT_EQ(full.error->code, ErrorCode::queue_full);
  const auto run = generator.run(0);
  generator.say(run, Channel::answer, "hi");
  generator.end(run, Finish::end_token);
  auto done = turns[0]->ended.get_future();
  EXPECT_EQ(await(done).finish, Finish::end_token);
  EXPECT_EQ(turns[0]->text, "hi");
  generator.run(2);  // the one that waited
  nudge();
  EXPECT_FALSE(queue->status().turns_full);
  queue->cancel_turn(calls[2]);
  auto cancelled = turns[2]->ended.get_future();
  EXPECT_EQ(await(cancelled).finish, Finish::cancelled);
  EXPECT_TRUE(list({})->jobs.empty());
  generator.end(generator.run(1), Finish::end_token);
}

TEST_F(Queue, AWaitingTurnCanBeCancelled) {
  generator.set_state(GeneratorState::loading);
  open();
  auto turn = std::make_shared<TurnRecorder>();
  const CallId call = queue->start_turn({}, turn);
  queue->cancel_turn(call);
  auto ended_turn = turn->ended.get_future();
  EXPECT_EQ(await(ended_turn).finish, Finish::cancelled);
  EXPECT_EQ(generator.runs(), 0u);
}

// --- pages, lists, retention --------------------------------------------------------------------

TEST_F(Queue, PagesCountCodePointsAndPutTogetherAreTheText) {
  open();
  const std::string text = "aé漢🙂 und so weiter 漢字🙂";
  const std::string id = submit_id(batch());
  generator.complete(generator.run(0), text);
  ended(id);
  for (std::int64_t limit = 1; limit <= 25; ++limit) {
    std::string whole;
    std::int64_t offset = 0;
    while (offset >= 0) {
      const auto page = result(id, Part::answer, offset, limit);
      ASSERT_TRUE(page);
      EXPECT_EQ(page->total_chars, 22);
      EXPECT_EQ(page->truncated, page->next_offset >= 0);
      whole += page->text;
      offset = page->next_offset;
    }
    EXPECT_EQ(whole, text) << limit;
  }
  EXPECT_EQ(result(id, Part::answer, 100, 5)->text, "");
  EXPECT_EQ(result(id, Part::answer, 3, INT64_MAX)->text.substr(0, 4), "🙂");
  EXPECT_EQ(result(id, Part::answer, -1, 5).error().param, "offset");
}

TEST_F(Queue, ALongAnswerIsLeftOutOfTheEnvelope) {
  open();
  const std::string id = submit_id(batch());
  generator.complete(generator.run(0), std::string(16'385, 'x'));
  const json::object e = ended(id);
  EXPECT_TRUE(e.at("answer").is_null());
  EXPECT_EQ(e.at("truncated"), true);
  EXPECT_EQ(e.at("next_offset"), 0);
  EXPECT_EQ(e.at("total_chars"), 16'385);
}

TEST_F(Queue, ListsAreNewestFirstInPagesAndFiltered) {
  open();
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) {
    json::object body = batch(("t" + std::to_string(i)).c_str());
    body["label"] = i % 2 ? "odd" : "even";
    if (i == 4) body["workspace"] = "/other";
    ids.push_back(submit_id(body));
    clock.advance(1);
  }
  generator.run(0);
  nudge();
  auto page = list({{}, "", "", 2, ""});
  ASSERT_EQ(page->jobs.size(), 2u);
  EXPECT_EQ(text_of(page->jobs[0], "job_id"), ids[4]);
  EXPECT_EQ(page->next_before, ids[3]);
  page = list({{}, "", "", 10, ids[3]});
  ASSERT_EQ(page->jobs.size(), 3u);
  EXPECT_EQ(page->next_before, "");
  EXPECT_EQ(list({{}, "/w", "", 10, ""})->jobs.size(), 4u);
  EXPECT_EQ(list({{}, "", "odd", 10, ""})->jobs.size(), 2u);
  EXPECT_EQ(list({State::running, "", "", 10, ""})->jobs.size(), 1u);
  EXPECT_EQ(list({State::running, "/other", "", 10, ""})->jobs.size(), 0u);
  EXPECT_EQ(list({State::queued, "/w", "even", 10, ""})->jobs.size(), 1u);
}

TEST_F(Queue, ListsSayWhatWasAsked) {
  open();
  const std::string first = submit_id(batch("what is it?"));
  generator.complete(generator.run(0));
  ended(first);
  const std::string next = submit_id({{"continue_from", first}, {"task", "and then?"}});
  reopen_after_crash();
  const auto page = list({});
  ASSERT_EQ(page->jobs.size(), 2u);
  EXPECT_EQ(text_of(page->jobs[0], "job_id"), next);
  EXPECT_EQ(text_of(page->jobs[0], "preview"), "and then?");
  EXPECT_EQ(text_of(page->jobs[1], "preview"), "what is it?");
}

TEST_F(Queue, ReadResultsBeyondTheNewestExpireAndPinnedOnesStay) {
  options.keep_read = 2;
  open();
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < 5; ++i) {
    json::object body = batch(("t" + std::to_string(i)).c_str());
    body["idempotency_key"] = "k" + std::to_string(i);
    body["pin"] = i == 0;
    ids.push_back(submit_id(body));
    generator.complete(generator.run(i));
    ended(ids[i]);
    if (i != 1) result(ids[i]);  // 1 stays unread
    advance(1000);
  }
  advance(61'000);
  EXPECT_EQ(state(ids[0]), "completed");  // pinned
  EXPECT_EQ(state(ids[1]), "completed");  // unread
  EXPECT_EQ(state(ids[2]), "expired");
  EXPECT_EQ(state(ids[3]), "completed");
  EXPECT_EQ(state(ids[4]), "completed");
  const json::object e = *get(ids[2]);
  EXPECT_NE(text_of(e, "note").find("was completed"), std::string::npos);
  EXPECT_EQ(result(ids[2]).error().code, ErrorCode::gone);
  const Error gone = pin(ids[2], true).error();
  EXPECT_EQ(gone.code, ErrorCode::gone);
  EXPECT_EQ(gone.hint, "submit it again");
  EXPECT_EQ(list({})->jobs.size(), 4u);
  // The key still stands for it.
  json::object body = batch("t2");
  body["idempotency_key"] = "k2";
  auto again = submit(body);
  ASSERT_TRUE(again);
  EXPECT_EQ(text_of(again->envelope, "state"), "expired");
  EXPECT_EQ(pin(ids[0], false)->at("pinned"), false);
}

TEST_F(Queue, UnreadResultsStayThirtyDays) {
  open();
  const std::string id = submit_id(batch());
  generator.complete(generator.run(0));
  ended(id);
  advance(29ll * 86'400'000);
  EXPECT_EQ(state(id), "completed");
  advance(2ll * 86'400'000);
  nudge();
  EXPECT_EQ(state(id), "expired");
}

TEST_F(Queue, RemoveTakesOnlyWhatHasEnded) {
  open();
  const std::string id = submit_id(batch());
  const auto run = generator.run(0);
  EXPECT_EQ(remove(id).error().code, ErrorCode::not_terminal);
  generator.complete(run);
  ended(id);
  EXPECT_TRUE(remove(id));
  EXPECT_EQ(get(id).error().code, ErrorCode::job_unknown);
}

}  // namespace
}  // namespace ponder::jobs
