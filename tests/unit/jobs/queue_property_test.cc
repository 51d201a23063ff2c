// Random lives of many jobs. After every step each job has made only legal moves, what was told of
// its text is a prefix of what comes later, and what has ended never changes.
#include <numeric>
#include <random>

#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

struct Known {
  std::string id;
  State state = State::queued;
  std::string text;
  std::string final_row;
};

class Property : public QueueTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  std::string row_as_text(const std::string& id) {
    return raw_value(options.database,
                     "SELECT quote(state)||quote(reason)||quote(ended_ms)||quote(text_sha256)||"
                     "quote(attempt)||quote(facts)||quote(note)||quote(chunk_count) FROM job "
                     "WHERE id='" +
                         id + "'");
  }
  void look(Known& job) {
    const json::object e = *get(job.id);
    const State now = *state_from(std::string_view(e.at("state").as_string()));
    if (now != job.state) {
      // Between two looks a job may have made several moves: each pair must be reachable.
      const bool direct = is_legal(job.state, now);
      const bool by_running = is_legal(job.state, State::running) && is_legal(State::running, now);
      EXPECT_TRUE(direct || by_running) << to_string(job.state) << " -> " << to_string(now);
      EXPECT_FALSE(is_terminal(job.state));
    }
    const std::string text = result(job.id, Part::partial)->text;
    EXPECT_EQ(text.substr(0, job.text.size()), job.text);
    job.text = text;
    job.state = now;
    if (!is_terminal(now)) return;
    const std::string row = row_as_text(job.id);
    if (job.final_row.empty()) job.final_row = row;
    EXPECT_EQ(row, job.final_row);
  }
};

/// The text of a job is a function of its task alone, so a repeated attempt says the same.
std::string output_of(const std::string& task) {
  std::string out;
  for (int i = 0; i < 6; ++i)
    out += task + "é" + std::to_string(i) + " ";
  return out;
}

TEST_P(Property, RandomLivesKeepToTheTable) {
  std::mt19937 random(GetParam());
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  options.max_running_batch = 2;
  options.resume_after_crash = GetParam() % 2 == 0;
  open();
  std::vector<Known> jobs;
  std::map<GenerationId, std::size_t> said;  // bytes, of live runs
  for (int step = 0; step < 120; ++step) {
    const int what = below(12);
    if (what <= 2 && jobs.size() < 25) {
      const std::string task = "t" + std::to_string(jobs.size());
      json::object body{{"task", task}, {"kind", below(2) ? "ask" : "batch"}};
      if (below(4) == 0) body["deadline_s"] = 5;
      Known job;
      job.id = submit_id(body);
      jobs.push_back(job);
    } else if (what <= 8 && generator.runs() > 0) {
      const auto run =
          generator.run(static_cast<std::size_t>(below(static_cast<int>(generator.runs()))));
      const std::string whole = output_of(run.request.chat.messages.back().content);
      const std::vector<std::int32_t>& resume = run.request.resume;  // a token is a text's length
      const auto given = static_cast<std::size_t>(std::accumulate(resume.begin(), resume.end(), 0));
      std::size_t& at = said.emplace(run.id, given).first->second;
      if (what <= 6) {
        const std::size_t until = std::min(whole.size(), at + static_cast<std::size_t>(below(9)));
        // An ended run says nothing any more; the queue must not mind one that does.
        generator.say(run, Channel::answer, whole.substr(at, until - at));
        at = until;
      } else {
        const Finish ends[] = {Finish::end_token,     Finish::output_limit, Finish::worker_died,
                               Finish::worker_killed, Finish::stream_lost,  Finish::stalled,
                               Finish::repetition};
        const Finish finish = ends[below(7)];
        const bool whole_end = finish != Finish::worker_died && finish != Finish::worker_killed;
        // Ends that are the model's own come at the end of its text.
        if (whole_end) generator.say(run, Channel::answer, whole.substr(at));
        at = whole.size();
        generator.end(run, finish);
      }
    } else if (what == 9 && !jobs.empty()) {
      cancel(jobs[static_cast<std::size_t>(below(static_cast<int>(jobs.size())))].id);
    } else if (what == 10 && below(4) == 0) {
      said.clear();
      reopen_after_crash();
      // A crash may take text that was told but not stored; what is stored holds.
      for (Known& job : jobs)
        if (!is_terminal(job.state)) job.text = result(job.id, Part::partial)->text;
    } else {
      advance(below(1500));
    }
    for (Known& job : jobs) {
      look(job);
      if (HasFailure()) FAIL() << "seed " << GetParam() << " step " << step;
    }
  }
  EXPECT_EQ(raw_value(options.database, "PRAGMA integrity_check"), "ok");
}
INSTANTIATE_TEST_SUITE_P(Seeds, Property, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace ponder::jobs
