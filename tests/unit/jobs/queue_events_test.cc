// Streams of events: nothing missing and nothing twice, from any position.
#include <mutex>
#include <numeric>

#include "jobs/event_streams.h"
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

/// What a client puts together from a stream.
struct Client {
  std::int64_t position = 0;
  std::string reasoning;
  std::string answer;
  std::vector<std::string> states;
  int ends = 0;
};

struct Stream {
  std::mutex mutex;
  std::vector<JobEvent> events;
  std::promise<void> ended;
  std::optional<Error> error;
};

class Events : public QueueTest {
 protected:
  std::shared_ptr<Stream> follow(const std::string& id, std::int64_t after,
                                 CallId* call = nullptr) {
    auto stream = std::make_shared<Stream>();
    const CallId made = queue->events(
        id, after,
        [stream](JobEvent e) {
          const std::lock_guard lock(stream->mutex);
          const bool end = e.type == "end";
          stream->events.push_back(std::move(e));
          if (end) stream->ended.set_value();
        },
        [stream](Error e) {
          stream->error = std::move(e);
          stream->ended.set_value();
        });
    if (call) *call = made;
    return stream;
  }
  static std::vector<JobEvent> all(const std::shared_ptr<Stream>& stream) {
    auto future = stream->ended.get_future();
    EXPECT_EQ(future.wait_for(FakeGenerator::kPatience), std::future_status::ready);
    const std::lock_guard lock(stream->mutex);
    return stream->events;
  }
  static std::vector<JobEvent> so_far(const std::shared_ptr<Stream>& stream) {
    const std::lock_guard lock(stream->mutex);
    return stream->events;
  }
  static void take(Client& client, const JobEvent& e) {
    EXPECT_GT(e.position, client.position);
    if (e.type != "end") client.position = e.position;
    if (e.type == "reasoning") client.reasoning += text_of(e.data, "text");
    if (e.type == "answer") client.answer += text_of(e.data, "text");
    if (e.type == "state") client.states.push_back(text_of(e.data, "state"));
    if (e.type == "end") ++client.ends;
  }
  static void expect_same(const Client& got, const Client& want, const std::string& where) {
    EXPECT_EQ(got.reasoning, want.reasoning) << where;
    EXPECT_EQ(got.answer, want.answer) << where;
    EXPECT_EQ(got.states, want.states) << where;
    EXPECT_EQ(got.ends, 1) << where;
  }
  /// A client that had everything up to each position it was told of goes on from there.
  void resume_from_everywhere(const std::string& id, const std::vector<JobEvent>& events) {
    Client whole;
    for (const JobEvent& e : events)
      take(whole, e);
    for (std::size_t cut = 0; cut <= events.size(); ++cut) {
      Client client;
      for (std::size_t i = 0; i < cut; ++i)
        take(client, events[i]);
      client.ends = 0;
      for (const JobEvent& e : all(follow(id, client.position)))
        take(client, e);
      expect_same(client, whole, "after event " + std::to_string(cut));
    }
  }
};

/// What is left of the output after the tokens that the run was given; a token is a text's length.
void speak(FakeGenerator& generator, const FakeGenerator::Run& run) {
  const auto& resume = run.request.resume;
  std::int64_t given = std::accumulate(resume.begin(), resume.end(), std::int64_t{0});
  const auto say = [&](Channel channel, const char* text) {
    const auto length = static_cast<std::int64_t>(std::string_view(text).size());
    if (given > 0)
      given -= length;
    else
      generator.say(run, channel, text);
  };
  for (const char* text : {"ab", "cé", "漢", "d"})
    say(Channel::reasoning, text);
  for (const char* text : {"x", "🙂y", "z"})
    say(Channel::answer, text);
}

TEST_F(Events, ALiveStreamTellsEachDeltaAtOnce) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  auto stream = follow(id, 0);
  generator.begin(run);
  generator.say(run, Channel::reasoning, "hm");
  nudge();  // the clock does not move: nothing waits for a flush
  Client client;
  for (const JobEvent& e : so_far(stream))
    take(client, e);
  EXPECT_EQ(client.reasoning, "hm");
  EXPECT_EQ(client.states, (std::vector<std::string>{"queued", "running"}));
  generator.end(run, Finish::end_token);
  const auto events = all(stream);
  EXPECT_EQ(events.back().type, "end");
  EXPECT_EQ(text_of(events.back().data, "state"), "completed");
}

TEST_F(Events, PositionsCountStatesAndBytes) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  speak(generator, run);
  generator.end(run, Finish::end_token);
  ended(id);
  const auto events = all(follow(id, 0));
  // queued, running, 9 bytes of thinking, 7 of answer, completed; `end` comes after it.
  ASSERT_GE(events.size(), 2u);
  const std::int64_t apart = EventStreams::kNumbersApart;
  EXPECT_EQ(events[events.size() - 2].position, (2 + 9 + 7 + 1) * apart);
  EXPECT_EQ(events.back().position, (2 + 9 + 7 + 2) * apart);
}

TEST_F(Events, AnEndedJobIsResumedFromEveryPosition) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  auto live = follow(id, 0);
  const auto run = generator.run(0);
  generator.begin(run);
  speak(generator, run);
  generator.end(run, Finish::end_token);
  resume_from_everywhere(id, all(live));
  // Also from inside a piece, as if it had been told byte by byte.
  Client whole;
  for (const JobEvent& e : all(follow(id, 0)))
    take(whole, e);
  for (std::int64_t after = 0; after < 22; ++after) {
    std::string rest;
    for (const JobEvent& e : all(follow(id, after)))
      if (e.type == "reasoning" || e.type == "answer") rest += text_of(e.data, "text");
    const std::string text = whole.reasoning + whole.answer;
    EXPECT_EQ(rest, text.substr(text.size() - rest.size())) << after;
    EXPECT_TRUE(after > 2 || rest == text);
  }
}

TEST_F(Events, ARequeuedJobNeverRepeatsOrSkips) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  auto live = follow(id, 0);
  auto run = generator.run(0);
  generator.begin(run);
  generator.say(run, Channel::reasoning, "abcé");
  generator.end(run, Finish::worker_killed);
  advance(100);
  run = generator.run(1);
  generator.begin(run);
  auto late = follow(id, 0);
  speak(generator, run);
  generator.end(run, Finish::end_token);
  const auto events = all(live);
  Client first, second;
  for (const JobEvent& e : events)
    take(first, e);
  for (const JobEvent& e : all(late))
    take(second, e);
  EXPECT_EQ(first.reasoning, "abcé漢d");
  EXPECT_EQ(first.states,
            (std::vector<std::string>{"queued", "running", "queued", "running", "completed"}));
  expect_same(second, first, "a late client");
  resume_from_everywhere(id, events);
}

TEST_F(Events, AStreamGoesOnAcrossACrashAlsoPastUnsavedText) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  auto live = follow(id, 0);
  auto run = generator.run(0);
  generator.begin(run);
  generator.say(run, Channel::reasoning, "abcé");
  flushed(id, 5);
  generator.say(run, Channel::reasoning, "漢");  // told, but not on disk
  nudge();
  const std::vector<JobEvent> before = so_far(live);
  reopen_after_crash();
  Client whole;
  std::vector<std::shared_ptr<Stream>> resumed;
  std::vector<Client> clients;
  for (std::size_t cut = 0; cut <= before.size(); ++cut) {
    Client client;
    for (std::size_t i = 0; i < cut; ++i)
      take(client, before[i]);
    resumed.push_back(follow(id, client.position));
    clients.push_back(client);
  }
  EXPECT_EQ(clients.back().reasoning, "abcé漢");
  run = generator.run(1);
  speak(generator, run);
  generator.end(run, Finish::end_token);
  for (std::size_t i = 0; i < resumed.size(); ++i) {
    for (const JobEvent& e : all(resumed[i]))
      take(clients[i], e);
    EXPECT_EQ(clients[i].reasoning, "abcé漢d") << i;
    EXPECT_EQ(clients[i].answer, "x🙂yz") << i;
    EXPECT_EQ(clients[i].states.size(), 5u) << i;
    EXPECT_EQ(clients[i].ends, 1) << i;
  }
  resume_from_everywhere(id, all(follow(id, 0)));
}

TEST_F(Events, ACutIsToldAndTheNewTextFollows) {
  options.resume_after_crash = false;
  open();
  const std::string id = submit_id({{"task", "t"}});
  auto live = follow(id, 0);
  auto run = generator.run(0);
  generator.say(run, Channel::answer, "one two");
  generator.end(run, Finish::worker_killed);
  advance(100);
  run = generator.run(1);
  generator.say(run, Channel::answer, "one too many");
  generator.end(run, Finish::end_token);
  std::string text;
  std::int64_t position = 0;
  for (const JobEvent& e : all(live)) {
    EXPECT_GT(e.position, position);
    position = e.position;
    if (e.type == "state" && e.data.contains("text_cut_to_bytes"))
      text.resize(static_cast<std::size_t>(e.data.at("text_cut_to_bytes").as_int64()));
    if (e.type == "answer") text += text_of(e.data, "text");
  }
  EXPECT_EQ(text, "one too many");
  std::string late;
  for (const JobEvent& e : all(follow(id, 0)))
    if (e.type == "answer") late += text_of(e.data, "text");
  EXPECT_EQ(late, "one too many");
}

TEST_F(Events, ProgressCarriesThePrefill) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  auto stream = follow(id, 0);
  run.sink->on_prefill({5, 10});
  run.sink->on_prefill({10, 10});
  nudge();
  const auto events = so_far(stream);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().type, "progress");
  EXPECT_EQ(events.back().data.at("prefill_done"), 10);
  // Two signs of life after the second change of state; a client that has both misses no text.
  EXPECT_EQ(events.back().position, 2 * EventStreams::kNumbersApart + 2);
  auto resumed = follow(id, events.back().position);
  generator.say(run, Channel::answer, "x");
  generator.end(run, Finish::end_token);
  std::string text;
  for (const JobEvent& e : all(resumed))
    if (e.type == "answer") text += text_of(e.data, "text");
  EXPECT_EQ(text, "x");
  all(stream);
}

TEST_F(Events, ACancelledQueuedJobEndsItsStream) {
  open();
  submit_id({{"task", "a"}});
  generator.run(0);
  const std::string id = submit_id({{"task", "b"}});
  auto stream = follow(id, 0);
  cancel(id);
  const auto events = all(stream);
  EXPECT_EQ(text_of(events.back().data, "state"), "cancelled");
}

TEST_F(Events, UnknownJobsAndForgottenStreams) {
  open();
  auto unknown = follow("nosuchjob", 0);
  all(unknown);
  ASSERT_TRUE(unknown->error);
  EXPECT_EQ(unknown->error->code, ErrorCode::job_unknown);
  const std::string id = submit_id({{"task", "t"}});
  const auto run = generator.run(0);
  CallId call = 0;
  auto stream = follow(id, 0, &call);
  nudge();
  const std::size_t told = so_far(stream).size();
  queue->forget(call);
  generator.say(run, Channel::answer, "x");
  generator.end(run, Finish::end_token);
  ended(id);
  EXPECT_EQ(so_far(stream).size(), told);
}

TEST_F(Events, StopEndsStreamsWithAnError) {
  open();
  const std::string id = submit_id({{"task", "t"}});
  generator.run(0);
  auto stream = follow(id, 0);
  nudge();
  queue->stop();
  all(stream);
  EXPECT_TRUE(stream->error);
}

}  // namespace
}  // namespace ponder::jobs
