#include "jobs/running_job.h"

#include <gtest/gtest.h>

#include <random>

namespace ponder::jobs {
namespace {

struct Part {
  Channel channel;
  std::string text;
};

/// Output in deltas of `step` bytes each, one token a delta, whole characters only.
std::vector<Delta> deltas(const std::vector<Part>& parts, std::size_t step) {
  std::vector<Delta> out;
  std::int32_t token = 0;
  for (const Part& part : parts)
    for (std::size_t at = 0; at < part.text.size(); at += step)
      out.push_back({part.channel, part.text.substr(at, step), {token++}});
  return out;
}

RunningJob job_with(const JobText& stored, std::int64_t chunks, std::int64_t tokens = 0) {
  StoredText kept;
  kept.text = stored;
  kept.chunk_count = chunks;
  kept.answer_tokens = tokens;
  JobRow row;
  row.attempt = 1;
  return RunningJob(row, 1, kept, {}, {}, 0);
}

std::string shown(const JobText& text) {
  return "R:" + text.of(Channel::reasoning) + " A:" + text.of(Channel::answer);
}

const std::vector<Part> kOutput{{Channel::reasoning, "thinking hard"},
                                {Channel::answer, "forty-two"}};

TEST(RunningJob, CollectsTextAndChunksByChannel) {
  RunningJob job = job_with({}, 0);
  for (const Delta& d : deltas(kOutput, 3))
    job.take(d);
  EXPECT_EQ(shown(job.text()), "R:thinking hard A:forty-two");
  EXPECT_EQ(job.phase(), "answering");
  const Progress progress = job.progress(0);
  ASSERT_EQ(progress.chunks.size(), 2u);
  EXPECT_EQ(progress.chunks[0].text, "thinking hard");
  EXPECT_EQ(progress.chunks[0].tokens.size(), 5u);
  EXPECT_EQ(job.reasoning_tokens(), 5);
  job.saved();
  EXPECT_EQ(job.unsaved_bytes(), 0u);
  EXPECT_EQ(job.progress(0).next_chunk, 2);
}

TEST(RunningJob, AForcedAnswerIsStoredWithTheTokensThatForcedIt) {
  RunningJob job = job_with({}, 0);
  job.take({Channel::reasoning, "thinking", {1}});
  Delta closing{Channel::reasoning, "", {2}};
  closing.forced_answer = true;
  job.take(closing);
  const auto says = [](const Progress& p) { return p.facts.contains("forced_answer"); };
  EXPECT_FALSE(says(job.progress(0)));  // its token waits for what comes next
  EXPECT_EQ(job.progress(0).chunks.back().tokens, std::vector<std::int32_t>{1});
  job.take({Channel::answer, "so", {3}});
  EXPECT_TRUE(says(job.progress(0)));
  EXPECT_EQ(job.progress(0).chunks.front().tokens, (std::vector<std::int32_t>{1, 2}));
}

TEST(RunningJob, AReplayStoresAndTellsOnlyWhatIsNew) {
  // Every prefix that may have been stored, against deltas of every size.
  const std::string whole = "thinking hardforty-two";
  for (std::size_t stored = 0; stored <= whole.size(); ++stored) {
    for (std::size_t step = 1; step <= 8; ++step) {
      JobText kept;
      kept.append(Channel::reasoning, whole.substr(0, std::min<std::size_t>(stored, 13)));
      if (stored > 13) kept.append(Channel::answer, whole.substr(13, stored - 13));
      RunningJob job = job_with(kept, 1);
      for (const Delta& d : deltas(kOutput, step)) {
        EXPECT_FALSE(job.take(d).differs);
        EXPECT_GE(job.text().size(), static_cast<std::int64_t>(stored));  // never backwards
      }
      EXPECT_FALSE(job.take_end().differs);
      EXPECT_EQ(shown(job.text()), "R:thinking hard A:forty-two");
      std::string fresh;
      for (const Chunk& chunk : job.progress(0).chunks)
        fresh += chunk.text;
      EXPECT_EQ(fresh, whole.substr(stored)) << stored << " " << step;
    }
  }
}

TEST(RunningJob, ADifferentTextIsCutToWhatHoldsAndGoesOn) {
  JobText kept;
  kept.append(Channel::reasoning, "thinking soft");
  kept.append(Channel::answer, "no");
  RunningJob job = job_with(kept, 2);
  bool differs = false;
  for (const Delta& d : deltas(kOutput, 2)) {
    const Taken taken = job.take(d);
    if (taken.differs) {
      EXPECT_FALSE(differs);
      differs = true;
      EXPECT_TRUE(job.must_cut());
      EXPECT_EQ(job.kept_bytes(), 9);  // "thinking "
      EXPECT_EQ(job.kept(0).chunks.at(0).text, "thinking ");
      job.cut_done();
      EXPECT_EQ(job.progress(0).next_chunk, 1);
    }
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(shown(job.text()), "R:thinking hard A:forty-two");
}

TEST(RunningJob, AShorterTextIsCutAtItsEnd) {
  JobText kept;
  kept.append(Channel::answer, "forty-two and more");
  RunningJob job = job_with(kept, 1);
  job.take({Channel::answer, "forty-two", {1}});
  EXPECT_TRUE(job.take_end().differs);
  EXPECT_EQ(job.kept_bytes(), 9);
  EXPECT_EQ(shown(job.text()), "R: A:forty-two");
}

TEST(RunningJob, AnotherChannelIsAnotherText) {
  JobText kept;
  kept.append(Channel::answer, "thinking");
  RunningJob job = job_with(kept, 1);
  EXPECT_TRUE(job.take({Channel::reasoning, "thinking", {1}}).differs);
  EXPECT_EQ(shown(job.text()), "R:thinking A:");
}

TEST(RunningJob, TokensStoredBeforeAreNotStoredTwice) {
  JobText kept;
  kept.append(Channel::answer, "abc");
  RunningJob job = job_with(kept, 1, 3);
  for (const char* text : {"a", "b", "c", "d", "e"})
    job.take({Channel::answer, text, {static_cast<std::int32_t>(text[0])}});
  const Progress progress = job.progress(0);
  ASSERT_EQ(progress.chunks.size(), 1u);
  EXPECT_EQ(progress.chunks[0].tokens, (std::vector<std::int32_t>{'d', 'e'}));
  EXPECT_EQ(job.answer_tokens(), 5);
}

TEST(RunningJob, StoredTokensBehindTheStoredTextAreNotStoredTwice) {
  JobText kept;
  kept.append(Channel::answer, "a");
  RunningJob job = job_with(kept, 1, 2);  // "a" and a token that brought no text yet
  job.take({Channel::answer, "a", {1}});
  job.take({Channel::answer, "", {2}});
  job.take({Channel::answer, "", {3}});
  job.take({Channel::answer, "b", {4}});
  std::vector<std::int32_t> tokens;
  for (const Chunk& chunk : job.progress(0).chunks)
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{3, 4}));
}

TEST(RunningJob, AResumedJobOnlyAppends) {
  StoredText stored;
  stored.text.append(Channel::reasoning, "thinking");
  stored.tokens = {1, 2};
  stored.chunk_count = 2;
  stored.reasoning_tokens = 2;
  JobRow row;
  RunningJob job(row, 1, stored, Resumed{8, 2, 2, 0}, {}, 0);
  EXPECT_FALSE(job.take({Channel::reasoning, "thinking", {3}}).differs);
  job.take({Channel::answer, "yes", {4}});
  EXPECT_FALSE(job.take_end().differs);
  EXPECT_EQ(shown(job.text()), "R:thinkingthinking A:yes");
  EXPECT_EQ(job.progress(0).next_chunk, 2);
  EXPECT_EQ(job.progress(0).chunks.at(0).tokens, (std::vector<std::int32_t>{3}));
  EXPECT_EQ(job.reasoning_tokens(), 3);
  EXPECT_EQ(job.answer_tokens(), 1);
}

TEST(RunningJob, BehindAResumedBeginningTheRestIsCompared) {
  StoredText stored;
  stored.text.append(Channel::answer, "given old");
  stored.chunk_count = 3;
  stored.answer_tokens = 5;
  JobRow row;
  RunningJob job(row, 1, stored, Resumed{6, 2, 0, 4}, {}, 0);
  EXPECT_TRUE(job.take({Channel::answer, "new", {9}}).differs);
  EXPECT_EQ(job.kept_bytes(), 6);
  EXPECT_EQ(job.kept(0).next_chunk, 2);
  job.cut_done();
  EXPECT_EQ(shown(job.text()), "R: A:given new");
  EXPECT_EQ(job.answer_tokens(), 5);
}

TEST(RunningJob, TextThatWasHeldBackToTheEndIsAChunkOfItsOwn) {
  RunningJob job = job_with({}, 0);
  job.take({Channel::reasoning, "a", {1}});
  job.take({Channel::reasoning, " <th", {}});
  const Progress progress = job.progress(0);
  ASSERT_EQ(progress.chunks.size(), 2u);
  EXPECT_EQ(progress.chunks[1].text, " <th");
  EXPECT_TRUE(progress.chunks[1].tokens.empty());
}

TEST(RunningJob, TheLastTokenWithoutTextWaitsForWhatFollows) {
  // A tool call's text comes after its last token, and apart from it.
  RunningJob job = job_with({}, 0);
  const auto tokens = [&] {
    std::vector<std::int32_t> all;
    for (const Chunk& chunk : job.progress(0).chunks)
      all.insert(all.end(), chunk.tokens.begin(), chunk.tokens.end());
    return all;
  };
  job.take({Channel::answer, "a", {1}});
  job.take({Channel::answer, "", {2}});
  job.take({Channel::answer, "", {3}});
  EXPECT_EQ(tokens(), (std::vector<std::int32_t>{1, 2}));
  job.take({Channel::answer, "<call>", {}}, true);
  EXPECT_EQ(tokens(), (std::vector<std::int32_t>{1, 2, 3}));
  job.take({Channel::answer, "", {4}});
  job.take_end();
  EXPECT_EQ(tokens(), (std::vector<std::int32_t>{1, 2, 3, 4}));
}

// T31, qwisp#134: a stream froze after a torn character.
TEST(RunningJob, SplitCharactersAreHeldUntilTheyAreWhole) {
  RunningJob job = job_with({}, 0);
  const std::string smile = "\xF0\x9F\x99\x82";
  for (const char c : smile)
    job.take({Channel::answer, std::string(1, c), {1}});
  EXPECT_EQ(job.text().of(Channel::answer), smile);
  job.take({Channel::answer, smile.substr(0, 2), {1}});
  EXPECT_EQ(job.text().of(Channel::answer), smile);
  job.take_end();
  EXPECT_EQ(job.text().of(Channel::answer).substr(0, 7), smile + "\xEF\xBF\xBD");
}

TEST(RunningJob, RunningTimeAddsUpOverAttemptsAndStops) {
  JobRow row;
  row.run_ms = 1000;
  RunningJob job(row, 1, {}, {}, {}, 50);
  EXPECT_EQ(job.run_ms(150), 1100);
  job.stop_clock(250);
  EXPECT_EQ(job.run_ms(9999), 1200);
}

}  // namespace
}  // namespace ponder::jobs
