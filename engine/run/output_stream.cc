#include "engine/run/output_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "engine/sample/random.h"

namespace ponder::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr text::TokenId kNothing = -1;  // where no token may come

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

text::SplitterOptions splitter_options(const GenerationRequest& request, bool starts_thinking) {
  text::SplitterOptions options;
  options.starts_thinking = starts_thinking;
  options.tools = request.chat.tools;
  options.reads_calls = request.schema.empty();
  options.call_id_seed = random_u64();
  return options;
}

/// What thinking may use, its closing tag included. A budget over all that leaves nothing for an
/// answer (max_tokens alone) gives a quarter of it to one.
std::int64_t thinking_limit(const PromptPlan& plan) {
  if (plan.answer_budget > 0) return plan.reasoning_budget;
  return plan.reasoning_budget - (plan.reasoning_budget + 3) / 4;
}

}  // namespace

sample::SamplerConfig sampler_config(const SamplingParams& params, bool with_tools) {
  sample::SamplerConfig config;  // its own defaults are the family's
  // Tools: a floor keeps rare tokens out of arguments, where one wrong character breaks a call.
  config.min_p = static_cast<float>(params.min_p.value_or(with_tools ? 0.05 : 0.0));
  if (params.temperature) config.temperature = static_cast<float>(*params.temperature);
  if (params.top_p) config.top_p = static_cast<float>(*params.top_p);
  if (params.top_k) config.top_k = *params.top_k;
  if (params.repetition_penalty)
    config.repetition_penalty = static_cast<float>(*params.repetition_penalty);
  if (params.presence_penalty)
    config.presence_penalty = static_cast<float>(*params.presence_penalty);
  if (params.frequency_penalty)
    config.frequency_penalty = static_cast<float>(*params.frequency_penalty);
  config.seed = params.seed.value_or(random_u64());
  config.logit_bias = params.logit_bias;
  return config;
}

OutputStream::OutputStream(const text::Tokenizer& tokenizer, const GenerationRequest& request,
                           PromptPlan plan, bool starts_thinking, std::shared_ptr<OutputSink> sink,
                           Clock::time_point asked,
                           std::shared_ptr<const text::JsonGrammar> grammar)
    : tokenizer_(tokenizer),
      plan_(std::move(plan)),
      sampling_(sampler_config(request.sampling, !request.chat.tools.empty())),
      max_answer_(std::min(request.budgets.max_answer_tokens.value_or(plan_.total_budget),
                           plan_.total_budget)),
      ignore_eos_(request.ignore_eos),
      top_logprobs_(request.sampling.top_logprobs),
      sink_(std::move(sink)),
      splitter_(tokenizer, splitter_options(request, starts_thinking)),
      closer_(tokenizer, request.on_limit == OnLimit::answer, thinking_limit(plan_)),
      stops_(request.sampling.stop),
      think_end_(tokenizer.special_id("</think>")),
      call_begin_(tokenizer.special_id("<tool_call>")),
      asked_(asked) {
  usage_.prompt_tokens = plan_.prompt_tokens;
  if (request.schema.empty()) return;
  if (!grammar) {
    auto compiled = text::JsonGrammar::compile(request.schema);
    if (!compiled) bad_schema_ = std::move(compiled).error();
    if (compiled) grammar = *std::move(compiled);
  }
  if (grammar) json_.emplace(tokenizer, std::move(grammar), starts_thinking);
}

std::optional<text::TokenId> OutputStream::next(std::span<float> logits) {
  if (ended_) return std::nullopt;
  if (bad_schema_) {
    end(Finish::failed, std::move(bad_schema_));
    return std::nullopt;
  }
  // Only an earlier run can have left an output that is over already.
  if (const auto finish = tokens_.size() == replayed_ && replayed_ > 0 ? over() : std::nullopt) {
    end(*finish);
    return std::nullopt;
  }
  const auto size = static_cast<std::size_t>(tokenizer_.size());
  CHECK(size <= logits.size());
  const std::span<float> known = logits.first(size);
  std::optional<sample::LogProbabilities> raw;
  if (top_logprobs_) raw.emplace(known);

  const std::optional<text::TokenId> due = closer_.due(thinking(), usage_.reasoning_tokens);
  text::TokenId id = due ? *due : choose(known, tokens_, position_after(0), json_state());
  if (id == kNothing) {
    end_without_a_token();
    return std::nullopt;
  }
  // With a schema an end token is chosen only where the text is whole, and then nothing else fits.
  if (tokenizer_.is_end(id) && (!ignore_eos_ || json_state())) {
    if (!thinking() || !closer_.wanted()) {
      const bool whole = splitter_.phase() == text::Phase::answering;
      end(whole ? Finish::end_token : Finish::stream_lost);
      return id;
    }
    closer_.close_now();
    id = closer_.due(true, usage_.reasoning_tokens).value();
  }
  std::optional<TokenLogprobs> logprobs;
  if (raw) logprobs = told_logprobs(*raw, id);
  take(id, std::move(logprobs));
  return id;
}

text::TokenId OutputStream::choose(std::span<float> logits, std::span<const text::TokenId> history,
                                   std::int64_t position,
                                   const text::JsonConstraint::State* state) const {
  sample::adjust(logits, sampling_, history);
  const std::vector<sample::Weighted> likely = sample::distribution(logits, sampling_);
  const auto at = static_cast<std::uint64_t>(position);
  const text::TokenId id = sample::choose(likely, sample::uniform(sampling_.seed, at));
  if (!state || json_->allows(*state, id)) return id;
  return choose_allowed(logits, likely, sample::uniform(sampling_.seed, at, 1), *state);
}

/// The first draw was refused, with the chance 1 - A; this one has the law p / A of the allowed
/// tokens. Together: p + (1 - A) p / A = p / A.
text::TokenId OutputStream::choose_allowed(std::span<const float> logits,
                                           std::span<const sample::Weighted> likely, double u,
                                           const text::JsonConstraint::State& state) const {
  constexpr std::size_t kFew = 64;  // then a look at each is cheaper than a walk
  std::vector<sample::Weighted> left;
  if (likely.size() <= kFew) {
    std::copy_if(likely.begin(), likely.end(), std::back_inserter(left),
                 [&](const sample::Weighted& w) { return json_->allows(state, w.id); });
  } else {
    const std::vector<text::TokenId>& allowed = json_->allowed(state);
    std::copy_if(likely.begin(), likely.end(), std::back_inserter(left),
                 [&](const sample::Weighted& w) {
                   return std::binary_search(allowed.begin(), allowed.end(), w.id);
                 });
  }
  if (left.empty()) {
    const std::vector<text::TokenId>& allowed = json_->allowed(state);
    if (allowed.empty()) return kNothing;
    left = sample::distribution(logits, sampling_, allowed);
  }
  return sample::choose(left, u);
}

text::TokenId OutputStream::guess(std::span<float> logits,
                                  std::span<const text::TokenId> drafts) const {
  ThoughtCloser closer = closer_;
  bool in_thinking = thinking();
  std::int64_t reasoning = usage_.reasoning_tokens;
  std::optional<text::JsonConstraint::State> state;
  if (json_) state = json_->state();
  for (const text::TokenId id : drafts) {
    closer.push(id, in_thinking, reasoning);
    if (in_thinking) ++reasoning;
    // A draft that may not come will not be taken; what follows it is of no use.
    if (!in_thinking && state && !json_->advance(*state, id)) state.reset();
    in_thinking = in_thinking && id != think_end_ && (json_ || id != call_begin_);
  }
  if (in_thinking) state.reset();
  if (const auto due = closer.due(in_thinking, reasoning)) return *due;

  std::vector<text::TokenId> history;  // copied only for settings that look at it
  if (sample::reads_history(sampling_)) {
    history = tokens_;
    history.insert(history.end(), drafts.begin(), drafts.end());
  }
  const text::TokenId id =
      choose(logits.first(static_cast<std::size_t>(tokenizer_.size())), history,
             position_after(drafts.size()), state ? &*state : nullptr);
  return id == kNothing ? 0 : id;  // a wrong guess, then
}

void OutputStream::replay(text::TokenId id) {
  if (ended_) return;
  read(id);
  for (const text::SplitEvent& event : events_)
    if (const auto* piece = std::get_if<text::SplitText>(&event);
        piece && piece->channel == Channel::answer)
      stops_.push(piece->text);
  replayed_ = tokens_.size();
}

void OutputStream::answer_now() {
  if (thinking()) closer_.ask();
}

std::int64_t OutputStream::position_after(std::size_t drafts) const {
  return plan_.prompt_tokens + static_cast<std::int64_t>(tokens_.size() + drafts);
}

void OutputStream::read(text::TokenId id) {
  closer_.push(id, thinking(), usage_.reasoning_tokens);
  // Only an earlier run under another schema can have made a token that may not come.
  if (json_ && !thinking() && !json_->push(id)) json_.reset();
  tokens_.push_back(id);
  events_.clear();
  splitter_.push(id, events_);
  usage_.reasoning_tokens = splitter_.reasoning_tokens();
  usage_.answer_tokens = splitter_.answer_tokens();
  cycling_ = cycles_.push(id);
}

void OutputStream::take(text::TokenId id, std::optional<TokenLogprobs> logprobs) {
  const Channel channel = thinking() ? Channel::reasoning : Channel::answer;
  read(id);
  count();
  std::vector<TokenLogprobs> told;
  if (logprobs) told.push_back(std::move(*logprobs));
  untold_.push_back({id, channel, std::move(events_), std::move(told)});
  if (!closer_.closing()) tell_untold();
  if (const auto finish = over()) end(*finish);
}

void OutputStream::tell_untold() {
  for (Untold& one : std::exchange(untold_, {}))
    tell(one.events, one.channel, {one.id}, std::move(one.logprobs));
}

void OutputStream::tell(Delta delta) {
  delta.forced_answer = closer_.forced();
  sink_->on_delta(delta);
}

/// A vocabulary may lack tokens for some bytes, and have no end token for a text that is whole.
void OutputStream::end_without_a_token() {
  if (json_->complete()) return end(Finish::end_token);
  Error error{ErrorCode::bad_request, "this model's vocabulary cannot write a text of the schema",
              "use other names and values in the schema, plain ones where you can"};
  error.param = "schema";
  end(Finish::failed, std::move(error));
}

TokenLogprobs OutputStream::told_logprobs(const sample::LogProbabilities& raw,
                                          text::TokenId id) const {
  TokenLogprobs told;
  told.id = id;
  told.logprob = raw.of(id);
  told.bytes = tokenizer_.bytes_of(id);
  told.top = raw.top(static_cast<std::size_t>(std::max(0, *top_logprobs_)));
  for (const auto& [other, logprob] : told.top)
    told.top_bytes.emplace_back(tokenizer_.bytes_of(other));
  return told;
}

const text::JsonConstraint::State* OutputStream::json_state() const {
  return json_ && !thinking() ? &json_->state() : nullptr;
}

std::optional<Finish> OutputStream::over() const {
  if (stops_.hit()) return Finish::stop_string;
  if (cycling_ && !ignore_eos_) return Finish::repetition;
  if (json_ && !thinking() && json_->finished()) return Finish::end_token;
  if (thinking() && !closer_.wanted() && usage_.reasoning_tokens >= plan_.reasoning_budget)
    return Finish::reasoning_exhausted;
  if (usage_.answer_tokens >= max_answer_ ||
      static_cast<std::int64_t>(tokens_.size()) >= plan_.total_budget)
    return Finish::output_limit;
  return std::nullopt;
}

void OutputStream::count() {
  const Clock::time_point t = Clock::now();
  const std::size_t made = tokens_.size() - replayed_;
  if (made == 1) {
    first_token_ = t;
    usage_.ttft_s = seconds_between(asked_, t);
  } else if (t > first_token_) {
    usage_.tokens_per_s = static_cast<double>(made - 1) / seconds_between(first_token_, t);
  }
}

/// The tokens go with the channel they were read in, whatever text they completed: the first
/// text of that channel carries them, else a delta without text.
void OutputStream::tell(const std::vector<text::SplitEvent>& events, Channel channel,
                        std::vector<std::int32_t> tokens, std::vector<TokenLogprobs> logprobs) {
  const auto* first = events.empty() ? nullptr : std::get_if<text::SplitText>(&events.front());
  if (!tokens.empty() && (!first || first->channel != channel))
    tell({channel, "", std::exchange(tokens, {}), std::exchange(logprobs, {})});
  for (const text::SplitEvent& event : events) {
    if (const auto* call = std::get_if<ToolCall>(&event)) {
      sink_->on_tool_call({*call});
      continue;
    }
    const auto& piece = std::get<text::SplitText>(event);
    std::string text = piece.channel == Channel::answer ? stops_.push(piece.text) : piece.text;
    if (!text.empty() || !tokens.empty())
      tell(
          {piece.channel, std::move(text), std::exchange(tokens, {}), std::exchange(logprobs, {})});
  }
}

void OutputStream::end(Finish finish, std::optional<Error> error) {
  if (ended_) return;
  ended_ = true;
  if (finish != Finish::cancelled && finish != Finish::no_memory) {
    tell_untold();
    events_.clear();
    splitter_.finish(events_);
    tell(events_, Channel::answer, {}, {});
    if (std::string rest = stops_.flush(); !rest.empty())
      tell({Channel::answer, std::move(rest), {}});
  }
  // What the splitter still held may have completed a stop string; the answer is then whole.
  if (stops_.hit() && finish == Finish::end_token) finish = Finish::stop_string;
  sink_->on_ended({finish, usage_, std::move(error), closer_.forced()});
}

}  // namespace ponder::run
