// A job that a budget cut anywhere, in the middle of a tag too, and that a new job resumed, has in
// the end the text of one that was never cut: the engine's output, the job that stores it, and the
// request of the job that goes on, together.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/run/output_stream.h"
#include "jobs/continuation.h"
#include "jobs/running_job.h"
#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using Ids = std::vector<text::TokenId>;

const text::Tokenizer& tokenizer() {
  return *test::pebble_vocabulary().tokenizer;
}

/// What the queue makes of an output (jobs/start.cc), without its threads and its disk.
class Stored final : public OutputSink {
 public:
  explicit Stored(jobs::RunningJob& job) : job_(job) {}
  void on_started(const Started&) override {}
  void on_prefill(const PrefillProgress&) override {}
  void on_delta(const Delta& delta) override { job_.take(delta); }
  void on_tool_call(const ToolCallMade& made) override {
    json::object call{{"name", made.call.name}, {"arguments", made.call.arguments}};
    job_.take({Channel::answer, fmt::format("<tool_call>\n{}\n</tool_call>", to_json(call)), {}},
              true);
  }
  void on_ended(const Ended& ended) override {
    finish = ended.finish;
    job_.take_end();
  }
  std::optional<Finish> finish;

 private:
  jobs::RunningJob& job_;
};

constexpr std::int64_t kWhole = 100'000;  // a budget that cuts nothing

struct Text {
  std::string reasoning, answer;
  std::vector<jobs::Chunk> chunks;
  std::optional<Finish> finish;
};

/// A model that writes `script`, for at most `most` tokens of output, after what is stored in
/// `before`, of which `carried` is gone on from. It dies after `alive` tokens.
Text write(const Ids& script, std::int64_t most, const std::vector<jobs::Chunk>& before = {},
           const jobs::Resumed& carried = {}, std::size_t alive = SIZE_MAX) {
  jobs::StoredText kept;
  GenerationRequest request;
  for (const jobs::Chunk& chunk : before) {
    kept.text.append(chunk.channel, chunk.text);
    request.resume.insert(request.resume.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
  kept.chunk_count = static_cast<std::int64_t>(before.size());
  kept.reasoning_tokens = carried.reasoning_tokens;
  kept.answer_tokens = carried.answer_tokens;
  jobs::RunningJob job({}, 1, std::move(kept), carried, {}, 0);
  const auto sink = std::make_shared<Stored>(job);
  request.sampling.temperature = 0;
  const PromptPlan plan{10, kWhole, most, 0, most, "medium", "template"};
  OutputStream out(tokenizer(), request, plan, true, sink, std::chrono::steady_clock::now());
  for (const text::TokenId id : request.resume)
    out.replay(id);
  for (std::size_t i = request.resume.size(); i < std::min(script.size(), alive) && !out.ended();
       ++i) {
    std::vector<float> logits(static_cast<std::size_t>(tokenizer().size()), -50.0F);
    logits[static_cast<std::size_t>(script[i])] = 50;
    out.next(logits);
  }
  EXPECT_TRUE(out.ended() || alive < script.size());
  return {job.text().of(Channel::reasoning), job.text().of(Channel::answer), job.progress(0).chunks,
          sink->finish};
}

/// A budget of `at` tokens cuts it, and a new job goes on.
Text cut_and_resumed(const Ids& script, std::int64_t at) {
  const Text first = write(script, at);
  jobs::JobRow parent;
  parent.id = "abcdefghijklmnopqrstuvwxyz";
  parent.state = jobs::State::incomplete;
  parent.reason = first.finish == Finish::output_limit ? jobs::Reason::output_limit
                                                       : jobs::Reason::reasoning_exhausted;
  parent.effort_requested = "xhigh";
  jobs::JobSpec spec;
  spec.mode = jobs::Mode::resume;
  auto made = jobs::continue_job(spec, parent, {}, first.chunks);
  EXPECT_TRUE(made) << made.error().message;
  return write(script, kWhole, made->text, made->submission.request.carried);
}

/// The daemon dies after `at` tokens, what came so far written down, and the same job goes on.
Text killed_and_resumed(const Ids& script, std::size_t at) {
  const Text first = write(script, kWhole, {}, {}, at);
  EXPECT_FALSE(first.finish);
  jobs::Resumed all, of_tokens;
  for (const jobs::Chunk& chunk : first.chunks) {
    ++all.chunks;
    all.bytes += static_cast<std::int64_t>(chunk.text.size());
    (chunk.channel == Channel::reasoning ? all.reasoning_tokens : all.answer_tokens) +=
        static_cast<std::int64_t>(chunk.tokens.size());
    if (!chunk.tokens.empty()) of_tokens = all;
  }
  return write(script, kWhole, first.chunks, of_tokens);
}

/// `special`: tags are the tokens that the vocabulary has for them, else several of ordinary text.
Ids ids_of(const std::string& script, bool special) {
  Ids ids = tokenizer().encode(script, special);
  ids.push_back(tokenizer().special_id("<|im_end|>"));
  return ids;
}

void expect_no_cut_is_heard(const std::string& script, bool special) {
  const Ids ids = ids_of(script, special);
  const Text whole = write(ids, kWhole);
  ASSERT_EQ(whole.finish, Finish::end_token) << script;
  for (std::size_t at = 1; at < ids.size(); ++at) {
    for (const bool killed : {false, true}) {
      const Text resumed = killed ? killed_and_resumed(ids, at)
                                  : cut_and_resumed(ids, static_cast<std::int64_t>(at));
      const std::string where =
          fmt::format("{}\n{} after {} tokens", script, killed ? "killed" : "cut", at);
      EXPECT_EQ(resumed.reasoning, whole.reasoning) << where;
      EXPECT_EQ(resumed.answer, whole.answer) << where;
      EXPECT_EQ(resumed.finish, whole.finish) << where;
    }
  }
}

TEST(ResumeText, NoCutInATagIsHeard) {
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=n>\n12 "
      "\xC3\xA4\n</parameter>\n</function>\n</tool_call>";
  for (const bool special : {true, false}) {
    const auto whole = [&](const std::string& script) { expect_no_cut_is_heard(script, special); };
    whole("so \n </thi nk> <b \xF0\x9F\x99\x82 </think>\n\nYes \n<tool_ no");
    whole("I call <tool_c it. \n</think>\n\n" + call + " \n" + call + "\nDone.");
    whole("closed by a call " + call + "and text");
    whole("x</think>\n\n<tool_call>\nnot a call</tool_call> so text </tool_call>");
  }
}

/// Pieces of tags, whole tags and text in any order, in tokens as small as they get.
TEST(ResumeText, PropertyNoCutInAnyTextIsHeard) {
  std::mt19937 random(20240611);
  const std::vector<std::string> pieces{
      "<",           "</",     "</think",     "</think>",     "think>",      "<tool_call",
      "<tool_call>", "_call>", "</tool_call", "</tool_call>", "\n",          "\n\n",
      " ",           "word",   "\xC3\xA4",    "<function=f>", "</function>", "{\"name\": \"f\"}",
      "<think>",     "tool"};
  for (int round = 0; round < 30; ++round) {
    std::string script = "a";
    for (int i = 0; i < 14; ++i)
      script += pieces[random() % pieces.size()];
    script += "</think>\n\nb";
    for (int i = 0; i < 10; ++i)
      script += pieces[random() % pieces.size()];
    script += " end.";
    const bool special = round % 2 == 0;
    // Others end inside a call.
    if (write(ids_of(script, special), kWhole).finish == Finish::end_token)
      expect_no_cut_is_heard(script, special);
  }
}

}  // namespace
}  // namespace ponder::run
