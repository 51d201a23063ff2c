#include "engine/text/output_splitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "engine/text/tool_call_parser.h"

namespace ponder::text {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

bool is_tag(std::string_view text) {
  return text == kThink || text == kThinkEnd || text == kCall || text == kCallEnd;
}
bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string call_id(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = seed + (index + 1) * 0x9E3779B97F4A7C15u;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return fmt::format("call_{:016x}", x ^ (x >> 31));
}

}  // namespace

struct OutputSplitter::State {
  State(const Tokenizer& t, SplitterOptions o)
      : tokenizer(t), characters(t), options(std::move(o)) {
    phase = options.starts_thinking ? Phase::thinking : Phase::answering;
  }

  const Tokenizer& tokenizer;
  Detokenizer characters;
  SplitterOptions options;
  Phase phase;
  std::int64_t reasoning_tokens = 0, answer_tokens = 0;
  std::uint64_t calls = 0;
  bool call_unfinished = false;

  std::string text;         // ready to go out, of the phase's channel
  std::string space;        // white space that may stand before a tag
  std::string tag;          // what may be the beginning of one
  bool nothing_yet = true;  // no text and no tag so far: <think> may open or be dropped
  bool nothing_thought = true;
  bool after_tag = false;  // line breaks before the next text are the form's
  CallBody body;
  std::string space_before_call;
  std::vector<SplitEvent>* out = nullptr;

  Channel channel() const {
    return phase == Phase::thinking ? Channel::reasoning : Channel::answer;
  }
  void give_out() {
    if (!text.empty()) out->push_back(SplitText{channel(), std::move(text)});
    text.clear();
  }

  /// The tags that mean something now.
  bool any_tag(auto&& matches) const {
    switch (phase) {
      case Phase::thinking:
        return matches(kThinkEnd) || (options.reads_calls && matches(kCall)) ||
               (nothing_yet && matches(kThink));
      case Phase::answering:
        return (options.reads_calls && matches(kCall)) || (nothing_yet && matches(kThink));
      case Phase::tool_call:
        return matches(kCallEnd);
    }
    return false;
  }

  void read(std::string_view characters_read) {
    for (const char c : characters_read)
      read(c);
  }
  void read(char c) {
    if (tag.empty() && c != '<') return read_text(c);
    if (c == '<') release_tag();  // a tag has one '<', its first character
    tag += c;
    if (any_tag([&](std::string_view t) { return t == tag; })) {
      const std::string whole = std::move(tag);
      tag.clear();
      return read_tag(whole);
    }
    if (!any_tag([&](std::string_view t) { return t.substr(0, tag.size()) == tag; })) release_tag();
  }
  /// What looked like a tag is text.
  void release_tag() {
    const std::string was = std::move(tag);
    tag.clear();
    for (const char c : was)
      read_text(c);
  }

  void read_text(char c) {
    if (phase == Phase::tool_call) return body.append(std::string_view(&c, 1));
    if (is_space(c)) {
      if (phase == Phase::answering || !nothing_thought) space += c;
      return;
    }
    release_space();
    nothing_yet = false;
    if (phase == Phase::thinking) nothing_thought = false;
    text += c;
  }
  void release_space() {
    if (after_tag) space.erase(0, space.rfind('\n') + 1);  // npos + 1 is 0
    after_tag = false;
    text += space;
    space.clear();
  }

  void read_tag(std::string_view whole) {
    if (whole == kCallEnd) return end_call();
    give_out();
    nothing_yet = false;
    if (whole == kCall) {
      space_before_call = phase == Phase::answering && !after_tag ? space : "";
      body.clear();
      phase = Phase::tool_call;
    } else if (whole == kThink) {
      phase = Phase::thinking;
      nothing_thought = true;
    } else {
      phase = Phase::answering;
      after_tag = true;
    }
    space.clear();
  }

  void end_call() {
    if (!body.may_end_here()) return body.append(kCallEnd);
    auto call = parse_tool_call(body.text(), options.tools);
    phase = Phase::answering;
    if (call) {
      call->id = call_id(options.call_id_seed, calls++);
      out->push_back(std::move(*call));
      after_tag = true;
    } else {
      call_is_text();
      text += kCallEnd;
    }
    body.clear();
  }
  void call_is_text() {
    phase = Phase::answering;
    after_tag = false;
    text += space_before_call;
    text += kCall;
    text += body.text();
  }

  void push(TokenId id) {
    (phase == Phase::thinking ? reasoning_tokens : answer_tokens) += 1;
    if (tokenizer.is_control(id) && !is_tag(tokenizer.bytes_of(id))) {
      read(characters.flush());
    } else {
      read(characters.push(id));
    }
    give_out();
  }

  void finish() {
    read(characters.flush());
    if (phase == Phase::tool_call) {
      call_unfinished = true;
      call_is_text();
      text += tag;
      give_out();
      phase = Phase::tool_call;
    } else {
      release_tag();
      release_space();
      give_out();
    }
    tag.clear();
  }
};

OutputSplitter::OutputSplitter(const Tokenizer& tokenizer, SplitterOptions options)
    : state_(std::make_unique<State>(tokenizer, std::move(options))) {}
OutputSplitter::~OutputSplitter() = default;

void OutputSplitter::push(TokenId id, std::vector<SplitEvent>& out) {
  state_->out = &out;
  state_->push(id);
}
void OutputSplitter::finish(std::vector<SplitEvent>& out) {
  state_->out = &out;
  state_->finish();
}

Phase OutputSplitter::phase() const {
  return state_->phase;
}
bool OutputSplitter::thinking_closed() const {
  return state_->phase != Phase::thinking;
}
bool OutputSplitter::call_unfinished() const {
  return state_->call_unfinished;
}
std::int64_t OutputSplitter::reasoning_tokens() const {
  return state_->reasoning_tokens;
}
std::int64_t OutputSplitter::answer_tokens() const {
  return state_->answer_tokens;
}

}  // namespace ponder::text
