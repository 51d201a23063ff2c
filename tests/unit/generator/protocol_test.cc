#include "engine/generator/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace ponder::protocol {
namespace {

Frame frame_of(const std::string& bytes) {
  FrameReader reader;
  reader.feed(bytes);
  const auto frame = reader.next().value();
  return frame.value();
}

GenerationRequest request() {
  GenerationRequest r;
  r.chat.messages.push_back({"user", "hello \xC3\xBC"});
  r.chat.effort = Effort{Effort::Word::low, {}};
  r.sampling.seed = UINT64_MAX;
  r.sampling.stop = {"x"};
  r.budgets.max_tokens = 5;
  r.ignore_eos = true;
  r.raw_prompt = "raw";
  r.on_limit = OnLimit::answer;
  r.schema = {{"type", "object"}};
  r.resume = {4, 5, 6};
  r.sampling.logit_bias = {{7, -100.0f}, {8, 2.5f}};
  r.sampling.top_logprobs = 3;
  return r;
}

std::vector<ToWorker> to_worker() {
  return {PlanCall{1, request()},
          TokenizeCall{2, "text", true},
          Start{UINT64_MAX, request()},
          Cancel{3},
          Ping{4},
          AnswerNow{5}};
}

std::vector<FromWorker> from_worker() {
  const PromptPlan plan{10, 100, 20, 30, 50, "medium", "template"};
  Error error{ErrorCode::context_length_exceeded, "too long", "shorten", "messages"};
  error.details = {{"n_ctx", 100}};
  Ended ended{Finish::failed, {1, 2, 3, 4, 5, 6, 0.5, 10.25, 20.5}, error};
  return {Hello{kVersion, {"pebble", "demo", "/m.gguf", 4096, "cpu"}, {1000, 900, 10, 20, 64}},
          Refused{error},
          Planned{1, plan},
          Planned{1, fail(error)},
          Tokenized{2, std::vector<std::int32_t>{1, 2, 3}},
          Tokenized{2, fail(error)},
          Of<Started>{7, {plan, 5, "device", "", 3}},
          Of<PrefillProgress>{7, {5, 10}},
          Of<Delta>{7, {Channel::reasoning, "so", {1, 2}}},
          Of<Delta>{7, {Channel::answer, "so", {1, 2}, {}, true}},
          Of<Delta>{7,
                    {Channel::answer,
                     "so",
                     {1},
                     {TokenLogprobs{1, -0.5, {{1, -0.5}, {2, -1.25}}, "so", {"so", "\xC3"}}}}},
          Of<ToolCallMade>{7, {{"c1", "f", {{"a", 1}}}}},
          Of<Ended>{7, ended},
          Of<Ended>{7, {Finish::end_token, {}, {}, true}},
          Of<Ended>{7, {Finish::no_memory, {}, error}},
          Memory{{UINT64_MAX, 900, 10, 20, 64}},
          Pong{9}};
}

TEST(Protocol, DecodeUndoesEncode) {
  for (const ToWorker& message : to_worker()) {
    const std::string bytes = encode(message).value();
    const auto back = decode_to_worker(frame_of(bytes));
    ASSERT_TRUE(back) << back.error().message << " in " << bytes.substr(5);
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back).value(), bytes);
  }
  for (const FromWorker& message : from_worker()) {
    const std::string bytes = encode(message).value();
    const auto back = decode_from_worker(frame_of(bytes));
    ASSERT_TRUE(back) << back.error().message << " in " << bytes.substr(5);
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back).value(), bytes);
  }
}

TEST(Protocol, ACrossedWireIsNoticed) {
  for (const ToWorker& message : to_worker())
    EXPECT_FALSE(decode_from_worker(frame_of(encode(message).value())));
  for (const FromWorker& message : from_worker())
    EXPECT_FALSE(decode_to_worker(frame_of(encode(message).value())));
}

TEST(Protocol, BytesThatAreNoUtf8GoOutAsReplacementCharacters) {
  const FromWorker delta = Of<Delta>{1,
                                     {Channel::answer,
                                      "a\xFF"
                                      "b\xC3",
                                      {1}}};
  const FromWorker back = decode_from_worker(frame_of(encode(delta).value())).value();
  EXPECT_EQ(std::get<Of<Delta>>(back).event.text,
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(Protocol, AWorkerMayNotTellWhatTheDaemonFindsOut) {
  for (const Finish finish : {Finish::stalled, Finish::worker_died, Finish::worker_killed})
    EXPECT_FALSE(
        decode_from_worker(frame_of(encode(FromWorker(Of<Ended>{1, {finish, {}, {}}})).value())));
  EXPECT_FALSE(decode_from_worker(frame_of(
      encode(FromWorker(Of<Ended>{1, {Finish::failed, {}, {}}})).value())));  // without why
  EXPECT_FALSE(decode_from_worker(
      frame_of(encode(FromWorker(Of<Ended>{1, {Finish::no_memory, {}, {}}})).value())));
  EXPECT_FALSE(decode_from_worker(frame_of(encode(FromWorker(Memory{{1, 1, 1, 1, 0}})).value())));
}

TEST(Protocol, AnotherVersionIsRefused) {
  EXPECT_FALSE(decode_from_worker(frame_of(encode(FromWorker(Hello{kVersion + 1, {}})).value())));
}

TEST(FrameReader, GivesFramesWhateverThePieces) {
  std::string all;
  std::vector<std::string> want;
  for (const FromWorker& message : from_worker()) {
    want.push_back(encode(message).value());
    all += want.back();
  }
  for (const std::size_t piece : {1u, 2u, 7u, 100u, 100000u}) {
    FrameReader reader;
    std::size_t got = 0;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      reader.feed(std::string_view(all).substr(at, piece));
      while (const auto frame = reader.next().value()) {
        ASSERT_LT(got, want.size());
        EXPECT_EQ(frame->payload, want[got].substr(5));
        ++got;
      }
    }
    EXPECT_EQ(got, want.size());
  }
}

TEST(FrameReader, RefusesALengthOverTheBoundBeforeAnyPayload) {
  FrameReader reader;
  reader.feed(std::string("\xFF\xFF\xFF\xFF\x01", 5));
  EXPECT_FALSE(reader.next());
}

TEST(Protocol, ATooLargeRequestIsRefusedHere) {
  const auto frame = encode(ToWorker(TokenizeCall{1, std::string(kMaxPayload, 'x'), false}));
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, ErrorCode::too_large);
}

/// Whatever the bytes: an Error or a message that encodes again, and no crash.
void digest(const Frame& frame) {
  const auto to = decode_to_worker(frame);
  EXPECT_TRUE(!to || encode(*to));
  const auto from = decode_from_worker(frame);
  EXPECT_TRUE(!from || encode(*from));
}

TEST(Protocol, FuzzedFramesNeverCrash) {
  std::mt19937_64 random(11);
  std::vector<std::string> seeds;
  for (const ToWorker& message : to_worker())
    seeds.push_back(encode(message).value());
  for (const FromWorker& message : from_worker())
    seeds.push_back(encode(message).value());
  for (int round = 0; round < 30'000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    switch (random() % 4) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        for (int n = 0; n < 3; ++n)
          bytes[random() % bytes.size()] ^= static_cast<char>(1 << (random() % 8));
        break;
      case 2:
        bytes[4] = static_cast<char>(random());
        break;
      default:
        for (char& c : bytes)
          c = static_cast<char>(random());
    }
    FrameReader reader;
    reader.feed(bytes);
    if (const auto frame = reader.next(); frame && *frame) digest(**frame);
    if (bytes.size() > 5) digest({static_cast<std::uint8_t>(bytes[4]), bytes.substr(5)});
  }
}

TEST(Protocol, EveryCutOffPayloadIsAnError) {
  for (const FromWorker& message : from_worker()) {
    const Frame whole = frame_of(encode(message).value());
    for (std::size_t n = 0; n < whole.payload.size(); ++n)
      EXPECT_FALSE(decode_from_worker({whole.type, whole.payload.substr(0, n)}));
  }
}

}  // namespace
}  // namespace ponder::protocol
