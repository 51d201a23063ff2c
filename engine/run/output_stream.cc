#include "engine/run/output_stream.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/ids.h"

namespace ponder::run {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

text::SplitterOptions splitter_options(const GenerationRequest& request, bool starts_thinking) {
  text::SplitterOptions options;
  options.starts_thinking = starts_thinking;
  options.tools = request.chat.tools;
  options.call_id_seed = random_u64();
  return options;
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
  return config;
}

OutputStream::OutputStream(const text::Tokenizer& tokenizer, const GenerationRequest& request,
                           PromptPlan plan, bool starts_thinking, std::shared_ptr<OutputSink> sink,
                           Clock::time_point asked)
    : tokenizer_(tokenizer),
      plan_(std::move(plan)),
      sampling_(sampler_config(request.sampling, !request.chat.tools.empty())),
      max_answer_(std::min(request.budgets.max_answer_tokens.value_or(plan_.total_budget),
                           plan_.total_budget)),
      ignore_eos_(request.ignore_eos),
      sink_(std::move(sink)),
      splitter_(tokenizer, splitter_options(request, starts_thinking)),
      stops_(request.sampling.stop),
      asked_(asked) {
  usage_.prompt_tokens = plan_.prompt_tokens;
}

std::optional<text::TokenId> OutputStream::next(std::span<float> logits) {
  if (ended_) return std::nullopt;
  const auto known = static_cast<std::size_t>(tokenizer_.size());
  CHECK(known <= logits.size());
  const std::int64_t position = plan_.prompt_tokens + static_cast<std::int64_t>(tokens_.size());
  const text::TokenId id = sample::sample(logits.first(known), sampling_, tokens_, position);
  if (tokenizer_.is_end(id) && !ignore_eos_) {
    const bool whole = splitter_.phase() == text::Phase::answering;
    end(whole ? Finish::end_token : Finish::stream_lost);
  } else {
    take(id);
  }
  return id;
}

void OutputStream::take(text::TokenId id) {
  const Channel channel =
      splitter_.phase() == text::Phase::thinking ? Channel::reasoning : Channel::answer;
  tokens_.push_back(id);
  events_.clear();
  splitter_.push(id, events_);
  count();
  tell(events_, channel, {id});
  if (stops_.hit()) return end(Finish::stop_string);
  if (cycles_.push(id) && !ignore_eos_) return end(Finish::repetition);
  if (const auto limit = limit_reached()) end(*limit);
}

std::optional<Finish> OutputStream::limit_reached() const {
  if (splitter_.phase() == text::Phase::thinking &&
      usage_.reasoning_tokens >= plan_.reasoning_budget)
    return Finish::reasoning_exhausted;
  if (usage_.answer_tokens >= max_answer_ ||
      static_cast<std::int64_t>(tokens_.size()) >= plan_.total_budget)
    return Finish::output_limit;
  return std::nullopt;
}

void OutputStream::count() {
  usage_.reasoning_tokens = splitter_.reasoning_tokens();
  usage_.answer_tokens = splitter_.answer_tokens();
  const Clock::time_point t = Clock::now();
  if (tokens_.size() == 1) {
    first_token_ = t;
    usage_.ttft_s = seconds_between(asked_, t);
  } else if (t > first_token_) {
    usage_.tokens_per_s =
        static_cast<double>(tokens_.size() - 1) / seconds_between(first_token_, t);
  }
}

/// The tokens go with the channel they were read in, whatever text they completed: the first
/// text of that channel carries them, else a delta without text.
void OutputStream::tell(const std::vector<text::SplitEvent>& events, Channel channel,
                        std::vector<std::int32_t> tokens) {
  const auto* first = events.empty() ? nullptr : std::get_if<text::SplitText>(&events.front());
  if (!tokens.empty() && (!first || first->channel != channel))
    sink_->on_delta({channel, "", std::exchange(tokens, {})});
  for (const text::SplitEvent& event : events) {
    if (const auto* call = std::get_if<ToolCall>(&event)) {
      sink_->on_tool_call({*call});
      continue;
    }
    const auto& piece = std::get<text::SplitText>(event);
    std::string text = piece.channel == Channel::answer ? stops_.push(piece.text) : piece.text;
    if (!text.empty() || !tokens.empty())
      sink_->on_delta({piece.channel, std::move(text), std::exchange(tokens, {})});
  }
}

void OutputStream::end(Finish finish, std::optional<Error> error) {
  if (ended_) return;
  ended_ = true;
  events_.clear();
  splitter_.finish(events_);
  tell(events_, Channel::answer, {});
  if (std::string rest = stops_.flush(); !rest.empty())
    sink_->on_delta({Channel::answer, std::move(rest), {}});
  // What the splitter still held may have completed a stop string; the answer is then whole.
  if (stops_.hit() && finish == Finish::end_token) finish = Finish::stop_string;
  sink_->on_ended({finish, usage_, std::move(error)});
}

}  // namespace ponder::run
