#pragma once
// The one door to a language model. Three things stand behind it: the worker process
// (worker_generator.h, in the daemon), the engine itself or the scripted stub (inside the worker
// process), and later an upstream server. Queue and daemon know only this header.
//
// Thread-safe. Callbacks come on a thread of the generator's; they must return at once and may
// call the generator again.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/generator/chat_request.h"

namespace ponder {

using GenerationId = std::uint64_t;  ///< chosen by the caller, never used twice

/// What a spent reasoning budget does: end the generation, or close the thinking and answer from
/// the reserved budget.
enum class OnLimit { stop, answer };

struct GenerationRequest {
  ChatRequest chat;
  std::optional<std::string> raw_prompt = {};  ///< instead of chat: a rendered prompt
  SamplingParams sampling;
  Budgets budgets;
  /// An end token is a token like any other; but an answer with a schema ends where its text is
  /// whole.
  bool ignore_eos = false;
  OnLimit on_limit = OnLimit::stop;
  /// The answer must be a JSON text of this schema; empty: any text. Bounds every answer token,
  /// from the close of the thinking on.
  json::object schema = {};
  /// Tokens that an earlier run of this request already made: they are read, not sampled, nothing
  /// of them is told again, and the output goes on after them as if it had never been cut.
  std::vector<std::int32_t> resume = {};
};

/// What a request comes to before any work: the exact prompt and the budgets that fit.
struct PromptPlan {
  std::int64_t prompt_tokens = 0;
  std::int64_t n_ctx = 0;
  std::int64_t reasoning_budget = 0;  ///< tokens the thinking may use
  std::int64_t answer_budget = 0;     ///< tokens reserved for the answer
  std::int64_t total_budget = 0;      ///< tokens both may use together
  std::string effort_used;            ///< "none" "low" "medium" "xhigh" or a number
  std::string effort_by;              ///< "template" or "budget"
};

/// One kind of text in the output.
enum class Channel { reasoning, answer };

struct Started {
  PromptPlan plan;
  std::int64_t cached_tokens = 0;
  std::string cache_path = "cold";  ///< cold, device, host
  std::string miss_reason = {};     ///< why less than the whole prompt was found
  /// Where the prompt leaves the longest sequence of tokens seen before it; unset: nowhere.
  std::optional<std::int64_t> diverged_at = {};
};
struct PrefillProgress {
  std::int64_t done = 0;
  std::int64_t total = 0;
};
/// How likely a token was before any sampling setting, and the likeliest tokens in its place.
struct TokenLogprobs {
  std::int32_t id = 0;
  double logprob = 0;
  std::vector<std::pair<std::int32_t, double>> top = {};
  std::string bytes = {};                   ///< of the token; may be part of a character
  std::vector<std::string> top_bytes = {};  ///< of each of `top`
};

/// Text of whole UTF-8 characters, and the tokens that made it (all tokens so far are the
/// concatenation over deltas; text may lag behind by what a tag or a character still needs).
struct Delta {
  Channel channel = Channel::answer;
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<TokenLogprobs> logprobs = {};  ///< of `tokens`, where the request asked for them
  /// The thinking was closed from outside (on_limit, answer_now), with these tokens or before them:
  /// Ended says so too, but an output that is cut has none.
  bool forced_answer = false;
};
/// A whole tool call, after its last token.
struct ToolCallMade {
  ToolCall call;
};

/// How a generation ended. Only end_token after closed thinking is success.
enum class Finish {
  end_token,            ///< the model's own end token, thinking closed (tool calls included)
  stop_string,          ///< one of the caller's stop strings; success for the chat APIs
  output_limit,         ///< answer or total budget, or the window, is spent
  reasoning_exhausted,  ///< thinking spent its budget
  repetition,           ///< a token cycle
  stream_lost,          ///< the output ended without an end token (worker exited 0, stream cut)
  stalled,              ///< no token for stall_s; the worker was replaced
  cancelled,            ///< by cancel(); text held back is not told, as resume goes on with it
  /// There is no memory for it beside those that run: at its start (Started never came) or, where
  /// the system itself had none left, in the middle, as after a cancel. It may be started again
  /// when one of them has ended; alone it always starts. The error's details say how many bytes it
  /// takes (`needed`, where that is known) and how many are free (`free`).
  no_memory,
  worker_died,    ///< signal or nonzero exit: the job's doing, counts as an attempt
  worker_killed,  ///< killed from outside or device lost: nobody's doing, no attempt
  failed,         ///< see error
};
std::string_view to_string(Finish finish);

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t reasoning_tokens = 0;
  std::int64_t answer_tokens = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double ttft_s = 0;
  double prefill_tokens_per_s = 0;
  double tokens_per_s = 0;
};
struct Ended {
  Finish finish = Finish::failed;
  Usage usage;
  std::optional<Error> error = {};  ///< with Finish::failed
  bool forced_answer = false;       ///< the thinking was closed for it (on_limit, answer_now)
};

/// Receives one generation. Started comes first (unless it fails at once), Ended last and exactly
/// once; nothing comes after it.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_started(const Started& started) = 0;
  virtual void on_prefill(const PrefillProgress& progress) = 0;
  virtual void on_delta(const Delta& delta) = 0;
  virtual void on_tool_call(const ToolCallMade& call) = 0;
  virtual void on_ended(const Ended& ended) = 0;
};

struct ModelInfo {
  std::string id;           ///< "pebble", "stub", or the file's stem
  std::string model_class;  ///< "demo" for the bundled model, else "user"
  std::string path;
  std::int64_t n_ctx = 0;
  std::string device;  ///< "cpu", ...
};

/// The memory that all running generations share. One of them takes at most need() of its prompt
/// and total budget together, and is started only while so much is free, or alone.
struct ContextMemory {
  std::uint64_t budget = 0;          ///< bytes; 0: nothing is known, and nothing is held back
  std::uint64_t free = 0;            ///< of it
  std::uint64_t sequence_bytes = 0;  ///< of a generation, whatever its length
  std::uint64_t page_bytes = 0;      ///< of each page_tokens begun
  std::int64_t page_tokens = 64;     ///< at least 1

  std::uint64_t need(std::int64_t tokens) const;
  friend bool operator==(const ContextMemory&, const ContextMemory&) = default;
};

enum class GeneratorState { loading, ready, failed };

/// For /health. Truthful within 2 s of any change.
struct GeneratorStatus {
  GeneratorState state = GeneratorState::loading;
  std::string reason;  ///< why it is not ready
  ModelInfo model;
  std::int64_t pid = 0;  ///< the worker, or 0
  std::int64_t restarts = 0;
  std::string last_error;
  double uptime_s = 0;
  /// `loading` because the device is gone: it is tried again, but nothing is being loaded now.
  bool device_lost = false;
  std::vector<std::string> degraded = {};  ///< "slow": under 30 % of the usual speed
  double tokens_per_s = 0;                 ///< of all generations together; 0: not measured
  double usual_tokens_per_s = 0;           ///< 0: not known yet
  ContextMemory memory = {};
};

class Generator {
 public:
  virtual ~Generator() = default;

  /// Renders and counts: the exact plan, or context_length_exceeded with its three numbers, or
  /// loading / model_missing when there is nobody to ask. `done` is called exactly once.
  virtual void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) = 0;

  /// The same for a caller that waits no longer than so for a worker that loads: then nobody holds
  /// or counts the prompt any more.
  virtual void plan_within(double /*seconds*/, GenerationRequest request,
                           std::function<void(Result<PromptPlan>)> done) {
    plan(std::move(request), std::move(done));
  }

  /// Token ids of `text` (special tokens parsed if `special`).
  virtual void tokenize(std::string text, bool special,
                        std::function<void(Result<std::vector<std::int32_t>>)> done) = 0;

  /// Starts a generation. The sink is kept until Ended.
  virtual void start(GenerationId id, GenerationRequest request,
                     std::shared_ptr<OutputSink> sink) = 0;

  /// Ends it as `cancelled` within one prefill chunk or one decode step. Unknown or ended ids are
  /// ignored.
  virtual void cancel(GenerationId id) = 0;

  /// Closes its thinking at the next border of a sentence (or soon after) and lets it answer from
  /// the reserved budget. Ignored when it is not thinking, unknown or ended.
  virtual void answer_now(GenerationId id) = 0;

  /// Gives back the memory that the model takes, until the next plan, tokenize or start loads it
  /// again. `done` is called once it is free (also where there is nothing to free), or with
  /// not_terminal while something is being made.
  virtual void unload(std::function<void(Result<void>)> done) { done({}); }

  virtual GeneratorStatus status() const = 0;

  /// Ends what runs as cancelled and whatever process does it; returns when it is gone. Later calls
  /// are answered at once, with an error. For the end of the daemon.
  virtual void stop() {}
  /// `changed` is called whenever status().memory has changed: before a generation that was let in
  /// tells that it started, and after one has ended. One listener; where nothing is known, never.
  virtual void watch_memory(std::function<void(const ContextMemory&)> /*changed*/) {}
};

}  // namespace ponder
