#pragma once
// The queue behind job_queue.h: everything it owns lives on the queue thread, and the public
// methods only leave messages for it. Written in five files by what is asked of it:
//   job_queue.cc  open, stop, status; the public methods
//   submit.cc     from a JobSpec to a committed row
//   start.cc      who runs, and how it is started
//   dispatch.cc   what the generator says; how a job ends
//   reads.cc      envelopes, waits, pages, events; cancel, pin, remove
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "jobs/call_table.h"
#include "jobs/envelope.h"
#include "jobs/estimate.h"
#include "jobs/event_streams.h"
#include "jobs/job_queue.h"
#include "jobs/queue_thread.h"
#include "jobs/running_job.h"
#include "jobs/scheduler.h"
#include "jobs/store/job_store.h"
#include "jobs/submission.h"
#include "jobs/waiting_jobs.h"

namespace ponder::jobs {

class QueueActor final : public JobQueue {
 public:
  using EnvelopeDone = std::function<void(Result<json::object>)>;

  /// How the generator's threads reach the queue thread. It outlives the queue for as long as a
  /// generation may still call; then messages go nowhere.
  struct Door {
    std::mutex mutex;
    QueueActor* actor = nullptr;
    /// False: the queue is gone.
    bool post(std::function<void(QueueActor&)> message);
  };

  QueueActor(Options options, Generator& generator, const Clock& clock,
             std::unique_ptr<JobStore> store, std::string instance);
  ~QueueActor() override;
  /// `ended`: jobs that recovery has ended, of which nobody has been told.
  Result<void> begin(std::vector<std::pair<std::string, State>> ended);

  CallId submit(JobSpec spec, std::function<void(Result<Submitted>)> done) override;
  CallId get(std::string id, Look look, EnvelopeDone done) override;
  CallId list(ListFilter filter, std::function<void(Result<ListPage>)> done) override;
  CallId result(std::string id, Part part, std::int64_t offset, std::int64_t limit,
                std::function<void(Result<ResultPage>)> done) override;
  CallId cancel(std::string id, EnvelopeDone done) override;
  CallId remove(std::string id, std::function<void(Result<void>)> done) override;
  CallId pin(std::string id, bool pinned, EnvelopeDone done) override;
  CallId prune(Prune prune, std::function<void(Result<std::vector<std::string>>)> done) override;
  CallId events(std::string id, std::int64_t after, std::function<void(JobEvent)> event,
                std::function<void(Error)> failed) override;
  void forget(CallId call) override;
  CallId start_turn(GenerationRequest request, std::shared_ptr<OutputSink> sink) override;
  void cancel_turn(CallId turn) override;
  QueueStatus status() const override;
  void reconfigure(const Options& options) override;
  void stop() override;

  // What the generator says, on the queue thread.
  void on_started(GenerationId generation, const Started& started);
  void on_prefill(GenerationId generation, const PrefillProgress& progress);
  void on_delta(GenerationId generation, const Delta& delta, bool of_call = false);
  void on_ended(GenerationId generation, const Ended& ended);
  void on_planned(std::uint64_t pending, Result<PromptPlan> plan);
  void on_turn_ended(CallId turn);
  /// There was no memory for it beside what runs: it waits again.
  void on_turn_refused(CallId turn, GenerationRequest request, std::shared_ptr<OutputSink> sink,
                       std::uint64_t bytes);

 private:
  struct Turn {
    GenerationRequest request;
    std::shared_ptr<OutputSink> sink;
    std::pair<std::int64_t, std::uint64_t> order;
    std::int64_t since_ms = 0;
    std::uint64_t bytes = 0;  ///< as of a WaitingJob
  };
  struct RunningTurn {
    GenerationId generation = 0;
    std::pair<std::int64_t, std::uint64_t> order;
    std::int64_t since_ms = 0;
    bool cancelled = false;
  };
  struct PendingSubmit {
    CallId call = 0;
    JobRow row;
    std::string request;
    bool force_new = false;
    std::vector<Chunk> text;          ///< that it begins with
    std::optional<JobSpec> takes_on;  ///< resume or answer_now
    std::int64_t carried_tokens = 0;
    QueueThread::TimerId timer;
    std::function<void(Result<Submitted>)> done;
  };
  struct Waiter {
    CallId call = 0;
    bool until_end = false;  ///< of a cancel: wakes when the job has ended
    std::optional<QueueThread::TimerId> timer;
    EnvelopeDone done;
  };

  // job_queue.cc
  template <class Done>
  CallId ask(Done done, std::function<void(CallId, Done)> work);
  void note_store(const Error* error);
  template <class T>
  bool stored(const Result<T>& result) {
    note_store(result ? nullptr : &result.error());
    return result.has_value();
  }
  void refresh_status();
  void begin_stop(std::shared_ptr<std::promise<void>> stopped);
  void end_stop();
  void check_stopped();
  void drop_call(CallId call);
  bool is_owner();
  std::int64_t now() const { return clock_.steady_ms(); }
  std::int64_t ageing_ms() const { return static_cast<std::int64_t>(options_.ageing_s * 1000); }

  // submit.cc
  void submit_now(CallId call, ReadySpec ready, std::function<void(Result<Submitted>)> done);
  Result<std::optional<Submitted>> existing(const JobRow& wanted, bool force_new);
  Result<std::optional<ParentJob>> parent_of(const JobSpec& spec);
  Result<void> room_for_one(std::size_t pending) const;
  Result<GenerationRequest> take_on(PendingSubmit& pending);
  void finish_submit(std::uint64_t pending, const std::optional<PromptPlan>& plan,
                     const std::string& note);
  void take_over(PendingSubmit pending);
  void answer_submit(PendingSubmit& pending, Result<Submitted> answer);
  Result<Submitted> commit(PendingSubmit& pending);

  // start.cc
  void schedule();
  GeneratorStatus look_at_engine();
  bool on_trial(const JobRow& row) const;
  bool trial_goes_on();
  void poll_later(std::int64_t delay_ms);
  void enqueue(JobRow row, std::optional<std::int64_t> since_ms = {});
  Room room(const GeneratorStatus& engine) const;
  static std::uint64_t bytes_of(const JobRow& row, const ContextMemory& memory);
  void make_room(std::uint64_t bytes, std::uint64_t free, const ContextMemory& memory);
  bool start_job(const std::string& id, const GeneratorStatus& engine);
  Result<void> give_up_damaged(const JobRow& row, const StoredText& kept);
  Resumed begin_of(StoredRequest& request, const StoredText& kept, bool same_model);
  void start_turn_now(CallId call, Turn turn);
  void end_waiting_turn(CallId call, const Ended& ended);

  // dispatch.cc
  RunningJob* running(GenerationId generation);
  void give_up(RunningJob& job, Intent intent);
  void tell(RunningJob& job);
  void tell_progress(RunningJob& job);
  void arm_flush(RunningJob& job);
  bool flush(RunningJob& job);
  bool cut(RunningJob& job);
  void end_generation(RunningJob& job, const Ended& ended);
  void write_end(std::string id);
  void give_up(RunningJob& job);
  void forget_running(RunningJob& job);
  void cancel_timers(RunningJob& job);
  void arm_retention(std::int64_t delay_ms);
  void retain();
  std::int64_t retention_now() const;
  Result<std::vector<std::string>> prune_now(const Prune& prune);

  // reads.cc
  Result<JobRow> row_of(const std::string& id);
  Result<StoredText> text_of(const JobRow& row);
  json::object envelope_of(const JobRow& row, bool with_answer, const std::string& note = {});
  std::int64_t position_of(const std::string& id);
  void get_now(CallId call, const std::string& id, const Look& look, EnvelopeDone done);
  void keep_for_its_caller(JobRow& row);
  void wait_ran_out(const std::string& id, CallId call);
  /// `unwritten`: the job has stopped, but its end cannot be written; only who waits for it is
  /// told.
  void wake(const std::string& id, const Error* unwritten = nullptr);
  Result<void> end_queued(const std::string& id);
  void end_running(RunningJob& job, CallId call, EnvelopeDone done);
  void cancel_now(CallId call, const std::string& id, EnvelopeDone done);
  Result<ListPage> list_now(ListFilter filter);
  Result<ResultPage> result_now(const std::string& id, Part part, std::int64_t offset,
                                std::int64_t limit);
  void events_now(CallId call, const std::string& id, std::int64_t after, EventStreams::Event event,
                  EventStreams::Failed failed);
  /// Tells streams, waiters and on_end of a job that is not running what its row has become.
  void announce_stored(const std::string& id, const Result<JobRow>& row);
  void announce_stored(const JobRow& row);

  Options options_;  ///< changed by reconfigure() only, on the queue thread
  Generator& generator_;
  const Clock& clock_;
  const std::int64_t opened_wall_ms_ = clock_.wall_ms();  ///< see retention_now()
  const std::int64_t opened_ms_ = clock_.steady_ms();
  const std::string instance_;
  const std::shared_ptr<Door> door_;
  CallTable calls_;

  mutable std::mutex status_mutex_;
  QueueStatus status_;  // guarded by status_mutex_
  std::mutex stop_mutex_;
  std::atomic<std::uint64_t> next_generation_;

  // Queue thread only, from here on.
  std::unique_ptr<JobStore> store_;
  WaitingJobs waiting_;
  std::map<std::string, std::unique_ptr<RunningJob>> running_;
  std::unordered_map<GenerationId, std::string> generations_;
  std::map<GenerationId, Lane> detached_;  ///< given up by us, not yet ended by the generator
  std::map<CallId, Turn> waiting_turns_;
  std::map<CallId, RunningTurn> running_turns_;
  std::map<std::uint64_t, PendingSubmit> pending_submits_;
  std::uint64_t next_pending_ = 1;
  std::map<std::string, std::vector<Waiter>> waiters_;
  std::unordered_map<CallId, std::string> call_jobs_;  ///< waits and streams, by their call
  EventStreams streams_{calls_};
  RunTimes times_;
  std::uint64_t turn_count_ = 0;
  std::int64_t last_seq_ = 0;
  std::string engine_reason_;                     ///< why nothing starts; empty: it does
  std::map<std::string, std::string> no_memory_;  ///< jobs with a place and none, and a note
  std::int64_t hold_until_ms_ = 0;
  std::optional<QueueThread::TimerId> poll_timer_, retention_timer_, probe_timer_;
  bool stopping_ = false;
  std::shared_ptr<std::promise<void>> stopped_;  ///< set while stop() waits

  QueueThread thread_;  // last: it ends before what it uses
};

}  // namespace ponder::jobs
