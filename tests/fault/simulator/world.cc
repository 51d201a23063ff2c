// Long file: the people and the weather of one simulation in one place.
#include "tests/fault/simulator/world.h"

#include <fmt/core.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>

#include "engine/base/ids.h"
#include "jobs/queue_thread.h"
#include "tests/fault/simulator/disk.h"

namespace ponder::simulator {
namespace fs = std::filesystem;
using jobs::CallId;
using jobs::Lane;
using jobs::State;

namespace {

class WorldClock final : public Clock {
 public:
  std::int64_t wall_ms() const override { return steady + wall_offset; }
  std::int64_t steady_ms() const override { return steady; }
  std::int64_t steady = 1'000'000;
  std::int64_t wall_offset = 1'800'000'000'000;
};

/// A real directory for what looks at the file system past SQLite; one for each thread.
class RealDirectory {
 public:
  RealDirectory() {
    path_ = fs::canonical(fs::temp_directory_path()) / ("ponder-simulator-" + random_hex(8));
    fs::create_directory(path_);
  }
  ~RealDirectory() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  fs::path database() const { return path_ / "ponder.db"; }

 private:
  fs::path path_;
};

const fs::path& database_path() {
  thread_local const RealDirectory directory;
  thread_local const fs::path path = directory.database();
  return path;
}

class World final : public ScriptedModel::Watcher {
 public:
  World(std::uint64_t seed, Planted planted)
      : dice_(seed * 0x9e3779b97f4a7c15ull + 1),
        planted_(planted),
        ledger_(options_, [this](std::string what) { breach(std::move(what)); }) {
    draw_rules();
  }

  Outcome run(int steps) {
    open_life(template_image(), Moment::after_stop);
    for (step_ = 1; step_ <= steps && ok(); ++step_) {
      act();
      settle_down();
      if (ok()) ledger_.look(*life_->audit, Moment::step, now());
      check_waits();
    }
    if (ok()) end_well();
    if (!ok() && life_ && life_->audit) last_rows_ = life_->audit->rows();
    if (life_) close_life();
    if (!ok())
      for (const Row& row : last_rows_)
        trace_.push_back(fmt::format("  {} {} {} {} told {} read {} pinned {} deaths {} claims {}",
                                     row.seq, row.label, to_string(row.state),
                                     to_string(row.reason), row.told, row.read, row.pinned,
                                     row.deaths, row.claims));
    outcome_.trace.assign(trace_.begin(), trace_.end());
    return std::move(outcome_);
  }

  // --- what the model does ----------------------------------------------------------------------

  void run_started(const ScriptedModel::Run& run) override {
    if (!alive() || is_turn(run)) return;
    const int batch = static_cast<int>(
        std::count_if(runs_.begin(), runs_.end(), [](const auto& r) { return r.second.batch; }));
    Ledger::Entry* entry = ledger_.run_started(run, life_->audit->rows(), now(), batch);
    ++outcome_.counts.starts;
    if (!entry) return;
    say(fmt::format("{} starts, after {} tokens", entry->row.label, run.tokens.size()));
    const bool is_batch = entry->row.lane == Lane::batch;
    runs_[run.id] = {entry->id, is_batch};
    const auto same = std::count_if(runs_.begin(), runs_.end(),
                                    [&](const auto& r) { return r.second.batch == is_batch; });
    if (same > (is_batch ? options_.max_running_batch : options_.max_running_interactive))
      breach(fmt::format("{} runs in a place that is taken", entry->row.label));
  }
  void run_told(const ScriptedModel::Run& run, Channel, const std::string&) override {
    if (!alive()) return;
    if (Ledger::Entry* entry = entry_of(run)) ledger_.run_told(*entry, run, now());
  }
  void run_ended(const ScriptedModel::Run& run, const Ended& ended) override {
    if (!alive()) return;
    Ledger::Entry* entry = entry_of(run);
    if (!entry) return;
    say(fmt::format("{} ends: {}{} at token {}", entry->row.label, to_string(ended.finish),
                    ended.error ? fmt::format(" ({})", to_string(ended.error->code)) : "",
                    run.tokens.size()));
    if (ended.finish == Finish::worker_died) {
      ++outcome_.counts.deaths;
      const GenerationId culprit = life_->model.culprit();
      if (entry->row.deaths + 1 >= options_.max_attempts && culprit != 0 && culprit != run.id)
        breach(fmt::format("{} is poison because another job killed the engine", entry->row.label));
    }
    ledger_.run_ended(*entry, ended, now());
    runs_.erase(run.id);
  }

 private:
  struct Life {
    Life(const WorldClock& from, Dice& dice, ScriptedModel::Habits habits,
         ScriptedModel::Watcher& watcher, Image image)
        : clock(from), model(clock, dice, habits, watcher), disk(std::move(image)) {}
    WorldClock clock;
    ScriptedModel model;
    Disk disk;
    jobs::ManualExecutor executor;
    std::unique_ptr<jobs::JobQueue> queue;
    std::unique_ptr<Audit> audit;
    bool dead = false;  ///< killed: what it says is not heard any more
  };
  struct Wait {
    CallId call = 0;
    std::string id;
    std::int64_t due_ms = 0;
    std::string state, phase;
    bool answered = false;
    std::string what;
  };
  struct Follower {
    std::string id;
    CallId call = 0;
    std::int64_t position = 0;
    std::string text;  ///< as the events told it
    bool open = false, over = false;
    bool ahead = false;  ///< it was told more than a killed daemon had stored
  };
  struct LiveRun {
    std::string id;
    bool batch = false;
  };
  struct Turn final : OutputSink {
    void on_started(const Started&) override {}
    void on_prefill(const PrefillProgress&) override {}
    void on_delta(const Delta&) override {}
    void on_tool_call(const ToolCallMade&) override {}
    void on_ended(const Ended&) override { ++ends; }
    CallId call = 0;
    int ends = 0;
  };
  enum class Weather { fine, full, flaky, sync_fails };

  // --- the frame
  // ----------------------------------------------------------------------------------

  bool ok() const { return outcome_.breach.empty(); }
  bool alive() const { return life_ && !life_->dead; }
  std::int64_t now() const { return life_->clock.steady; }

  void say(std::string line) {
    line = fmt::format("{:>9} ms, step {:>3}: {}", life_ ? now() : 0, step_, line);
    for (const char c : line)
      outcome_.fingerprint =
          (outcome_.fingerprint ^ static_cast<unsigned char>(c)) * 1099511628211u;
    trace_.push_back(std::move(line));
    if (trace_.size() > 300) trace_.pop_front();
  }
  void breach(std::string what) {
    say("BREACH: " + what);
    if (ok()) outcome_.breach = std::move(what);
  }
  static bool is_turn(const ScriptedModel::Run& run) {
    return run.request.chat.messages.back().content.compare(0, 5, "turn ") == 0;
  }
  Ledger::Entry* entry_of(const ScriptedModel::Run& run) {
    const auto found = runs_.find(run.id);
    return found == runs_.end() ? nullptr : ledger_.find(found->second.id);
  }

  void draw_rules() {
    options_.database = database_path();
    options_.max_running_batch = dice_.between(1, 2);
    options_.max_running_interactive = dice_.between(1, 2);
    options_.ageing_s = dice_.between(2, 40);
    options_.max_queued = dice_.percent(20) ? 4 : 100;
    options_.keep_read = dice_.between(2, 20);
    options_.keep_unread = dice_.percent(30) ? dice_.between(3, 10) : 1000;
    options_.keep_unread_days = dice_.between(1, 30);
    options_.resume_after_crash = dice_.percent(80);
    options_.executor = nullptr;  // set with each life
    habits_.fault_percent = dice_.percent(50) ? dice_.between(2, 25) : 0;
    habits_.stubborn_percent = dice_.percent(40) ? dice_.between(5, 40) : 0;
    habits_.refused_percent = dice_.percent(20) ? 5 : 0;
    habits_.late_percent = dice_.percent(40) ? 20 : 0;
    habits_.pace_ms = dice_.between(10, 300);
    // A wish to cancel lasts no longer than the generation that does not hear it.
    if (planted_ == Planted::cancel_forgotten) habits_.stubborn_percent = 80;
    killers_ = dice_.percent(30);
    jumps_ = dice_.percent(60) && !std::getenv("NOJUMP");
    bad_disks_ = dice_.percent(40);
    power_cuts_ = dice_.percent(40);
    asks_percent_ = dice_.between(10, 90);
  }

  /// An empty database, made once a thread by the queue itself.
  Image template_image() {
    thread_local Image image;
    if (!image.empty()) return image;
    Disk disk;
    disk.make_current();
    WorldClock clock;
    Dice dice(1);
    struct : ScriptedModel::Watcher {
      void run_started(const ScriptedModel::Run&) override {}
      void run_told(const ScriptedModel::Run&, Channel, const std::string&) override {}
      void run_ended(const ScriptedModel::Run&, const Ended&) override {}
    } nobody;
    ScriptedModel model(clock, dice, {}, nobody);
    jobs::ManualExecutor executor;
    jobs::Options options = options_;
    options.executor = &executor;
    {
      auto queue = jobs::JobQueue::open(options, model, clock);
      if (!queue) std::abort();
    }
    image = disk.as_written();
    return image;
  }

  void open_life(Image image, Moment moment) {
    if (dice_.percent(10) && moment != Moment::after_stop) {
      // Killed once more while it starts.
      auto half = make_life(image);
      int left = dice_.between(1, 8);
      Image caught;
      half->disk.before_change = [&](Disk::Change) {
        if (--left == 0) caught = half->disk.as_written();
        return 0;
      };
      half->dead = true;
      auto queue = jobs::JobQueue::open(options_, half->model, half->clock);
      if (!queue) return breach("it does not start: " + queue.error().message);
      if (left <= 0) {
        say("killed while it starts");
        image = std::move(caught);
      }
      queue->reset();
    }
    life_ = make_life(std::move(image));
    ledger_.life_began(clock_.wall_offset);
    auto queue = jobs::JobQueue::open(options_, life_->model, life_->clock);
    if (!queue) return breach("it does not start: " + queue.error().message);
    life_->queue = std::move(*queue);
    life_->audit = std::make_unique<Audit>(database_path().string());
    ledger_.look(*life_->audit, moment, now());
    life_->disk.before_change = [this](Disk::Change change) { return weather(change); };
    for (Follower& follower : followers_)
      if (const Ledger::Entry* entry = ledger_.find(follower.id); entry && entry->order != 0)
        follower.ahead = follower.text.size() > life_->audit->texts(entry->row.seq).bytes();
  }

  std::unique_ptr<Life> make_life(Image image) {
    auto life = std::make_unique<Life>(clock_, dice_, habits_, *this, std::move(image));
    life->disk.make_current();
    life->disk.sync_does_nothing = planted_ == Planted::sync_does_nothing;
    life->model.repeats_after_resume = planted_ == Planted::text_told_twice;
    Life* raw = life.get();
    if (dice_.percent(50)) raw->model.load_until(raw->clock.steady + dice_.below(2000));
    options_.executor = &raw->executor;
    raw->executor.pass_time = [raw] {
      std::int64_t next = raw->clock.steady + 1000;
      for (const auto due : {raw->executor.next_due_ms(), raw->model.next_due_ms()})
        if (due) next = std::min(next, *due);
      raw->clock.steady = std::max(next, raw->clock.steady);
      raw->model.fire_due();
    };
    return life;
  }

  /// The old queue is torn down in a world of its own.
  void close_life() {
    clock_ = life_->clock;
    life_->dead = true;
    life_->disk.before_change = [](Disk::Change) { return 0; };
    life_->audit.reset();
    life_->queue.reset();
    life_.reset();
    runs_.clear();
    waits_.clear();
    turns_.clear();
    for (Follower& follower : followers_) {
      follower.open = false;
      // Its numbers may be those of claims that are lost; it goes with the power itself. One that
      // is ahead of what is stored can come back once: then its numbers no longer tell how far.
      follower.over = follower.over || follower.ahead || (crash_by_power_ && life_was_killed_);
    }
    life_was_killed_ = false;
    weather_ = Weather::fine;
    crash_in_ = 0;
    synced_badly_ = false;
  }

  int weather(Disk::Change change) {
    if (!alive()) return SQLITE_OK;
    if (crash_in_ > 0 && --crash_in_ == 0) {
      crash_image_ =
          crash_by_power_ ? life_->disk.after_power_cut(dice_) : life_->disk.as_written();
      life_->dead = true;
      return SQLITE_OK;
    }
    int code = SQLITE_OK;
    if (weather_ == Weather::full && change == Disk::Change::write) code = SQLITE_FULL;
    if (weather_ == Weather::flaky && change == Disk::Change::write && dice_.percent(30))
      code = SQLITE_IOERR_WRITE;
    if (weather_ == Weather::sync_fails && change == Disk::Change::sync) {
      code = SQLITE_IOERR_FSYNC;
      weather_ = Weather::fine;
      synced_badly_ = true;
    }
    if (code != SQLITE_OK) {
      ++outcome_.counts.store_errors;
      bad_until_ms_ = now() + 2000;
    }
    return code;
  }
  bool disk_is_well() const {
    return weather_ == Weather::fine && !synced_badly_ && now() > bad_until_ms_;
  }

  /// Does what is to be done at this moment; restarts a daemon that was killed in the middle of it.
  void settle_down() {
    if (!ok()) return;
    life_->executor.run();
    if (life_->dead) restart_after_crash();
  }

  void advance(std::int64_t ms) {
    const std::int64_t until = now() + ms;
    for (;;) {
      settle_down();
      if (!ok()) return;
      std::int64_t next = std::max(until, now());
      for (const auto due : {life_->executor.next_due_ms(), life_->model.next_due_ms()})
        if (due) next = std::min(next, std::max(*due, now()));
      const bool more = next < until;
      life_->clock.steady = next;
      life_->model.fire_due();
      settle_down();
      if (!more || !ok()) return;
    }
  }

  void restart_after_crash() {
    const bool power = crash_by_power_;
    ++(power ? outcome_.counts.power_cuts : outcome_.counts.kills);
    say(power ? "the power goes" : "killed");
    Image image = std::move(crash_image_);
    const std::int64_t killed_ms = now();
    const bool lag = !power && disk_is_well() && killed_ms > asleep_until_ms_;
    // What a killed daemon owes, before its successor touches it.
    if (lag) {
      Disk copy(image);
      copy.make_current();
      {
        const Audit audit(database_path().string());
        ledger_.check_lag(audit, killed_ms);
      }
      life_->disk.make_current();
    }
    life_was_killed_ = true;
    next_life(std::move(image), power ? Moment::after_power_cut : Moment::after_kill);
  }

  void next_life(Image image, Moment moment) {
    close_life();
    clock_.steady += dice_.between(10, 3000);
    if (jumps_ && dice_.percent(20)) jump(clock_);
    ledger_.life_ended(clock_.steady);
    if (planted_ != Planted::none) plant(image, moment);
    open_life(std::move(image), moment);
    if (!ok()) return;
    for (const json::object& body : unanswered_)  // their callers try again
      if (body.contains("idempotency_key")) retries_.push_back(body);
    unanswered_.clear();
  }

  void jump(WorldClock& clock) {
    constexpr std::int64_t kHour = 3'600'000;
    constexpr std::int64_t kJumps[] = {7 * 24 * kHour,  -2 * kHour, 60 * 24 * kHour,
                                       -7 * 24 * kHour, 30'000,     -30'000};
    clock.wall_offset += kJumps[dice_.below(6)];
    ++outcome_.counts.jumps;
    say(fmt::format("the wall clock jumps to {}", clock.wall_ms()));
  }

  /// What a queue with this bug would have left on the disk.
  void plant(Image& image, Moment moment) {
    std::string sql;
    const char* running = "(SELECT seq FROM job WHERE state = 'running' ORDER BY seq LIMIT 1)";
    switch (planted_) {
      case Planted::row_lost_at_claim:
        sql = fmt::format("DELETE FROM job WHERE seq = {};", running);
        break;
      case Planted::told_before_commit:
        if (moment != Moment::after_stop)
          sql = "DELETE FROM job WHERE state = 'queued' AND seq = (SELECT max(seq) FROM job);";
        break;
      case Planted::no_fence:
        sql = fmt::format(
            "UPDATE job SET state = 'completed', instance = NULL, ended_ms = created_ms, "
            "chunk_count = 0, text_bytes = 0, text_sha256 = zeroblob(32) WHERE seq = {};",
            running);
        break;
      case Planted::loses_its_place:
        sql = fmt::format("DELETE FROM chunk WHERE job = {};", running);
        for (const char* table : {"request", "state_change"})
          sql += fmt::format("UPDATE {} SET job = 1000000 + job WHERE job = {};", table, running);
        sql += fmt::format("UPDATE job SET seq = 1000000 + seq WHERE seq = {};", running);
        break;
      case Planted::cancel_forgotten:
        sql = "UPDATE job SET cancel_requested = 0 WHERE state = 'running';";
        break;
      case Planted::told_forgotten:
        sql = "UPDATE job SET told = 0;";
        break;
      case Planted::stop_counts_as_death:
        if (moment == Moment::after_stop)
          sql = "UPDATE job SET deaths = deaths + 1 WHERE state = 'queued' AND claims > 0;";
        break;
      case Planted::expires_early:
        sql =
            "UPDATE job SET state = 'expired', summary = 'gone' WHERE seq = (SELECT seq FROM job "
            "WHERE state = 'completed' AND read_ms IS NULL AND pinned = 0 ORDER BY seq DESC LIMIT "
            "1);";
        break;
      default:
        return;
    }
    if (sql.empty()) return;
    Disk disk(std::move(image));
    disk.make_current();
    {
      const Audit audit(database_path().string());
      audit.tamper(sql);
    }
    image = disk.as_written();
  }

  // --- the people -------------------------------------------------------------------------------

  void act() {
    if (!retries_.empty() && dice_.percent(50)) {
      const json::object body = retries_.front();
      retries_.erase(retries_.begin());
      return submit(body);
    }
    const int what = dice_.below(100);
    if (what < 22) return submit(new_body());
    if (what < 42) return advance(dice_.below(300));
    if (what < 58) return advance(dice_.below(4000));
    if (what < 60) return advance(dice_.below(70'000));
    if (what < 68) return wait();
    if (what < 74) return cancel();
    if (what < 79) return read();
    if (what < 80) return pin();
    if (what < 81) return remove();
    if (what < 82) return prune();
    if (what < 86) return follow();
    if (what < 89) return turn();
    if (what < 91) return kill_worker();
    if (what < 93) return change_weather();
    if (what < 95) return jump_now();
    if (what < 98) return crash();
    if (what < 99) return stop();
    sleep();
  }

  std::string any_id() {
    if (ids_.empty()) return "00000000000000000000000000";
    // Mostly what is new.
    const auto n = static_cast<int>(ids_.size());
    const int i = dice_.percent(60) ? n - 1 - dice_.below(std::min(n, 5)) : dice_.below(n);
    return ids_[static_cast<std::size_t>(i)];
  }
  std::string label_of(const std::string& id) {
    const Ledger::Entry* entry = ledger_.find(id);
    return entry ? entry->row.label : "nobody";
  }

  json::object new_body() {
    if (!bodies_.empty() && dice_.percent(15)) {
      json::object again =
          bodies_[static_cast<std::size_t>(dice_.below(static_cast<int>(bodies_.size())))];
      if (dice_.percent(30)) again["force_new"] = true;
      return again;
    }
    const std::string label = fmt::format("n{}", ++labels_);
    json::object body{{"label", label}, {"workspace", dice_.percent(50) ? "/a" : "/b"}};
    body["kind"] = dice_.percent(asks_percent_) ? "ask" : "batch";
    if (dice_.percent(30)) {
      body["idempotency_key"] = "key-" + label;
      ++outcome_.counts.keys;
    }
    if (dice_.percent(10)) body["pin"] = true;
    if (dice_.percent(10)) body["deadline_s"] = dice_.between(1, 4);
    if (dice_.percent(20)) body["effort"] = "none";
    if (dice_.percent(10)) body["max_answer_tokens"] = dice_.between(1, 8);
    if (dice_.percent(10)) body["max_reasoning_tokens"] = dice_.between(1, 6);
    if (dice_.percent(15)) body["on_limit"] = "answer";
    std::string task = "task " + label;
    if (killers_ && dice_.percent(10)) task += fmt::format(" [killer={}]", dice_.below(10));
    if (!ids_.empty() && dice_.percent(20)) {
      constexpr const char* kModes[] = {"follow_up", "resume", "answer_now"};
      body["continue_from"] = any_id();
      body["mode"] = kModes[dice_.below(3)];
      if (body["mode"] != "follow_up") task.clear();
    }
    if (!task.empty()) body["task"] = task;
    bodies_.push_back(body);
    return body;
  }

  std::shared_ptr<Wait> expect(const char* what, const std::string& id, std::int64_t due_ms) {
    auto wait = std::make_shared<Wait>();
    wait->what = what;
    wait->id = id;
    wait->due_ms = due_ms;
    waits_.push_back(wait);
    return wait;
  }

  void submit(const json::object& body) {
    if (ids_.size() >= 60) return advance(500);
    auto spec = jobs::parse_job_spec(body);
    if (!spec) return breach("a body is refused: " + spec.error().message);
    const std::string label = spec->label;
    const std::string key = spec->idempotency_key;
    if (spec->mode == jobs::Mode::answer_now)
      if (Ledger::Entry* parent = ledger_.find(spec->continue_from)) parent->cancel_asked = true;
    ledger_.submit_sent(label);
    say(fmt::format("submit {} {}{}", label, body.at("kind").as_string().c_str(),
                    spec->continue_from.empty() ? "" : " from " + label_of(spec->continue_from)));
    unanswered_.push_back(body);
    Life* life = life_.get();
    const std::int64_t due = now() + options_.plan_timeout_ms +
                             (spec->mode == jobs::Mode::answer_now ? options_.end_grace_ms : 0);
    const auto pending = expect("submit", {}, due);
    life->queue->submit(std::move(*spec), [=, this](Result<jobs::Submitted> answer) {
      if (life->dead) return;
      pending->answered = true;
      const auto sent = std::find(unanswered_.begin(), unanswered_.end(), body);
      if (sent != unanswered_.end()) unanswered_.erase(sent);
      submitted(label, key, body, std::move(answer));
    });
  }

  void submitted(const std::string& label, const std::string& key, const json::object& body,
                 Result<jobs::Submitted> answer) {
    if (!answer) {
      const ErrorCode code = answer.error().code;
      say(fmt::format("{} is refused: {}", label, to_string(code)));
      if (code == ErrorCode::storage) {
        if (disk_is_well()) breach(label + " is refused, and the disk is well");
        if (!key.empty()) retries_.push_back(body);
        return;
      }
      ledger_.submit_made_nothing(label);
      if (code == ErrorCode::queue_full) {
        const int queued = std::atoi(
            life_->audit->value("SELECT count(*) FROM job WHERE state = 'queued'").c_str());
        if (queued + static_cast<int>(unanswered_.size()) < options_.max_queued)
          breach(fmt::format("the queue is called full with {} jobs", queued));
      }
      if (code == ErrorCode::internal) breach(label + " is refused: " + answer.error().message);
      return;
    }
    const std::string id(answer->envelope.at("job_id").as_string());
    if (!answer->created) ledger_.submit_made_nothing(label);
    Ledger::Entry* known = ledger_.find(id);
    if (answer->created && known && known->accepted)
      breach(label + " is said to be new, and its id was told before");
    if (!answer->created && answer->envelope.at("label").as_string() != label)
      breach(label + " is answered with another job");
    if (!key.empty()) {
      const auto [first, fresh] = by_key_.emplace(key, id);
      Ledger::Entry* one = ledger_.find(first->second);
      if (!fresh && first->second != id && !(one && (one->gone || one->may_go)))
        breach(fmt::format("two jobs have the key {}", key));
      first->second = id;
    }
    say(fmt::format("{} is {}", label, answer->created ? "accepted" : "there already"));
    ledger_.accepted(id, life_->audit->rows(), now());
    if (!answer->created) return;
    ++outcome_.counts.accepted;
    ids_.push_back(id);
    ledger_.find(id)->pin_told = body.contains("pin");
  }

  void wait() {
    const std::string id = any_id();
    const std::int64_t wait_ms = dice_.percent(20)   ? 0
                                 : dice_.percent(60) ? dice_.between(1, 300)
                                                     : dice_.below(8000);
    say(fmt::format("wait {} ms for {}", wait_ms, label_of(id)));
    ++outcome_.counts.waits;
    const Ledger::Entry* entry = ledger_.find(id);
    const bool gone = !entry || entry->gone || entry->may_go;
    const auto pending = expect("wait", id, now() + wait_ms);
    Life* life = life_.get();
    // What a caller would have seen before it began to wait.
    life->queue->get(id, 0, [=](Result<json::object> r) {
      if (!r || life->dead) return;
      pending->state = r->at("state").as_string();
      const json::value& phase = r->at("phase");
      if (phase.is_string()) pending->phase = phase.as_string();
    });
    pending->call = life->queue->get(id, wait_ms, [=, this](Result<json::object> r) {
      if (life->dead) return;
      if (planted_ == Planted::wait_hangs && now() >= pending->due_ms && dice_.percent(30)) return;
      pending->answered = true;
      if (now() > pending->due_ms) breach("a wait was answered after its bound");
      if (!r) {
        if (!gone && disk_is_well()) breach("a wait ended with: " + r.error().message);
        return;
      }
      const State state = *jobs::state_from(std::string_view(r->at("state").as_string()));
      if (is_terminal(state)) return ledger_.end_told(id, state);
      const json::value& phase = r->at("phase");
      const std::string now_phase(phase.is_string() ? phase.as_string() : json::string());
      if (wait_ms == 0) return;
      const bool changed = to_string(state) != pending->state || now_phase != pending->phase;
      if (now() < pending->due_ms && !changed && !stopping_)
        breach(fmt::format("a wait for {} woke and nothing had changed", label_of(id)));
      Ledger::Entry* asked = ledger_.find(id);
      const bool ran_out = now() >= pending->due_ms && !changed && !stopping_;
      if (ran_out && asked && asked->row.lane == Lane::ask && disk_is_well())
        asked->must_be_told = true;
    });
    if (dice_.percent(10)) {
      life->queue->forget(pending->call);
      waits_.remove(pending);
    }
  }

  void cancel() {
    const std::string id = any_id();
    say("cancel " + label_of(id));
    ++outcome_.counts.cancels;
    Ledger::Entry* entry = ledger_.find(id);
    if (entry) entry->cancel_asked = true;
    // Ends that the disk does not take are told later: see end_well().
    const auto pending = expect("cancel", id, now() + options_.end_grace_ms);
    Life* life = life_.get();
    life->queue->cancel(id, [=, this](Result<json::object> r) {
      if (life->dead) return;
      pending->answered = true;
      if (!r) return;
      const State state = *jobs::state_from(std::string_view(r->at("state").as_string()));
      if (!is_terminal(state) && stopping_) return;  // its end could not be written down
      if (!is_terminal(state)) return breach("a cancel was answered, and the job has not ended");
      ledger_.end_told(id, state);
    });
  }

  void read() {
    const std::string id = any_id();
    say("read " + label_of(id));
    Life* life = life_.get();
    const jobs::Part part = dice_.percent(70) ? jobs::Part::answer : jobs::Part::partial;
    life->queue->result(id, part, 0, -1, [=, this](Result<jobs::ResultPage> page) {
      if (life->dead || !page) return;
      Ledger::Entry* entry = ledger_.find(id);
      if (!entry) return breach("a result of an unknown job");
      const bool whole = page->state == State::completed;
      if (part == jobs::Part::answer && !whole) breach("an answer of a job that is not completed");
      if (!entry->script) return;
      const auto texts = life_->audit->texts(entry->row.seq);
      if (is_terminal(page->state) && texts.answer != page->text)
        breach("a result is not what is stored");
    });
  }

  void pin() {
    const std::string id = any_id();
    const bool pinned = dice_.percent(60);
    say(fmt::format("{} {}", pinned ? "pin" : "unpin", label_of(id)));
    Ledger::Entry* entry = ledger_.find(id);
    if (entry) entry->pin_told.reset();
    Life* life = life_.get();
    life->queue->pin(id, pinned, [=, this](Result<json::object> r) {
      if (life->dead || !r) return;
      if (Ledger::Entry* now_entry = ledger_.find(id)) now_entry->pin_told = pinned;
    });
  }

  void remove() {
    const std::string id = any_id();
    say("remove " + label_of(id));
    Ledger::Entry* entry = ledger_.find(id);
    if (!entry || entry->gone) return;
    const bool before = entry->may_go;
    entry->may_go = true;
    Life* life = life_.get();
    life->queue->remove(id, [=, this](Result<void> r) {
      if (life->dead) return;
      Ledger::Entry* one = ledger_.find(id);
      if (!r && r.error().code != ErrorCode::storage) one->may_go = before;
    });
  }

  void prune() {
    say("prune");
    std::vector<std::string> named;
    for (auto& [id, entry] : ledger_.entries()) {
      if (!is_terminal(entry.row.state) || entry.row.pinned || entry.may_expire) continue;
      entry.may_expire = true;
      named.push_back(id);
    }
    Life* life = life_.get();
    jobs::Prune what;
    what.unread = dice_.percent(30);
    life->queue->prune(what, [=, this](Result<std::vector<std::string>> gone) {
      if (life->dead || !gone) return;
      for (const std::string& id : named)
        if (std::find(gone->begin(), gone->end(), id) == gone->end())
          ledger_.find(id)->may_expire = false;
    });
  }

  void follow() {
    if (followers_.size() < 6 && !ids_.empty())
      followers_.push_back({any_id(), 0, 0, {}, false, false});
    for (Follower& follower : followers_) {
      if (follower.over || (follower.open && (follower.ahead || !dice_.percent(30)))) continue;
      if (follower.open) life_->queue->forget(follower.call);
      listen(follower);
    }
  }

  void listen(Follower& follower) {
    Life* life = life_.get();
    Follower* f = &follower;
    f->open = true;
    const std::uint64_t turn = ++listens_;
    current_listen_[f] = turn;
    const auto mine = [=, this] { return !life->dead && current_listen_[f] == turn; };
    f->call = life->queue->events(
        f->id, f->position,
        [=, this](jobs::JobEvent event) {
          if (!mine()) return;
          ++outcome_.counts.events;
          if (event.position <= f->position)
            breach(fmt::format("events of {}: {} ({}) comes after {}", label_of(f->id),
                               event.position, event.type, f->position));
          f->position = event.position;
          if (event.type == "reasoning" || event.type == "answer")
            f->text += event.data.at("text").as_string();
          if (const json::value* cut = event.data.if_contains("text_cut_to_bytes"))
            f->text.resize(std::min(f->text.size(), static_cast<std::size_t>(cut->as_int64())));
          if (event.type == "end") followed(*f);
        },
        [=](const Error&) {
          if (mine()) f->open = false;
        });
  }

  /// Every byte once and in order, through cuts, crashes and reconnections.
  void followed(Follower& follower) {
    follower.open = false;
    follower.over = true;
    ++outcome_.counts.followed;
    const Ledger::Entry* entry = ledger_.find(follower.id);
    if (!entry || !entry->script || entry->row.state == State::expired) return;
    const StoredTexts texts = life_->audit->texts(entry->row.seq);
    // A thinking that is closed from outside may be closed elsewhere after a crash.
    if (entry->last_end && entry->last_end->forced_answer) return;
    const std::string stored = texts.reasoning + texts.answer;
    // What a killed daemon told last may never have been stored, nor come again if the job has
    // ended otherwise; it was the model's nevertheless.
    const bool same = entry->row.state == State::completed
                          ? stored == follower.text
                          : follower.text.compare(0, stored.size(), stored) == 0;
    if (!same)
      breach(fmt::format("the events of {} told \"{}\", stored is \"{}{}\"", entry->row.label,
                         follower.text, texts.reasoning, texts.answer));
  }

  void turn() {
    if (!turns_.empty() && dice_.percent(30)) {
      life_->queue->cancel_turn(turns_.back()->call);
      return say("a turn's client goes away");
    }
    say("a turn");
    GenerationRequest request;
    request.chat.messages.push_back({"user", fmt::format("turn {}", ++turns_made_)});
    auto sink = std::make_shared<Turn>();
    turns_.push_back(sink);
    sink->call = life_->queue->start_turn(std::move(request), sink);
  }

  // --- the weather ------------------------------------------------------------------------------

  void kill_worker() {
    const bool own = dice_.percent(30);
    say(own ? "the worker dies" : "the worker is killed");
    life_->model.end_worker(own ? Finish::worker_died : Finish::worker_killed,
                            dice_.percent(10) ? 20'000 : dice_.below(1500));
  }

  void change_weather() {
    if (!bad_disks_) return advance(100);
    if (weather_ != Weather::fine) {
      weather_ = Weather::fine;
      bad_until_ms_ = now() + 2000;
      return say("the disk is well");
    }
    constexpr Weather kKinds[] = {Weather::full, Weather::flaky, Weather::sync_fails};
    weather_ = kKinds[dice_.below(3)];
    say(fmt::format("bad weather {}", static_cast<int>(weather_)));
  }

  void jump_now() {
    if (jumps_) return jump(life_->clock);
    advance(200);
  }

  void crash() {
    crash_by_power_ = power_cuts_ && dice_.percent(50);
    if (dice_.percent(50)) {  // in the middle of what comes
      crash_in_ = dice_.between(1, 40);
      return;
    }
    crash_image_ = crash_by_power_ ? life_->disk.after_power_cut(dice_) : life_->disk.as_written();
    life_->dead = true;
  }

  void stop() {
    say("a clean stop");
    ++outcome_.counts.stops;
    const bool well = disk_is_well();
    stopping_ = true;
    life_->queue->stop();
    stopping_ = false;
    if (life_->dead) return;  // killed while it stopped
    for (const auto& sink : turns_)
      if (sink->ends != 1) breach("a turn did not end once with its daemon");
    for (const auto& wait : waits_)
      if (!wait->answered && well) breach(fmt::format("a {} was left open by a stop", wait->what));
    if (!ok()) return;
    if (well && disk_is_well()) ledger_.look(*life_->audit, Moment::after_stop, now());
    if (!ok()) return;
    life_->audit.reset();
    next_life(life_->disk.as_written(), well ? Moment::after_stop : Moment::after_kill);
  }

  /// The process or the machine sleeps: time passes, nothing is done.
  void sleep() {
    const std::int64_t ms = dice_.percent(10) ? 86'400'000 : dice_.between(1000, 100'000);
    say(fmt::format("sleeps for {} ms", ms));
    life_->clock.steady += ms;
    asleep_until_ms_ = now() + 1000;
    for (const auto& wait : waits_)
      wait->due_ms = std::max(wait->due_ms, now());
  }

  // --- the checks -------------------------------------------------------------------------------

  void check_waits() {
    if (!ok()) return;
    waits_.remove_if([](const auto& wait) { return wait->answered; });
    for (const auto& wait : waits_) {
      // All but a wait may be held up by a disk that takes nothing.
      const bool bounded = wait->what == "wait" || disk_is_well();
      const std::int64_t slack = wait->what == "wait" ? 0 : 1500;
      if (bounded && now() > wait->due_ms + slack)
        return breach(
            fmt::format("a {} hangs: {} ms over its bound", wait->what, now() - wait->due_ms));
    }
  }

  /// All is well from now on: everything comes to its end.
  void end_well() {
    say("all is well");
    weather_ = Weather::fine;
    crash_in_ = 0;
    habits_ = {0, 0, 0, 0, habits_.pace_ms};
    if (synced_badly_) stop();
    if (!ok()) return;
    life_->model.heal();
    bad_until_ms_ = 0;
    const auto all_over = [this] {
      return life_->audit->value("SELECT count(*) FROM job WHERE state IN ('queued', 'running')") ==
             "0";
    };
    for (int i = 0; i < 400 && ok() && !(all_over() && i > 8); ++i) {
      advance(2000);
      if (ok()) ledger_.look(*life_->audit, Moment::step, now());
      check_waits();
    }
    if (!ok()) return;
    advance(130'000);  // two rounds of retention
    if (!ok()) return;
    ledger_.look(*life_->audit, Moment::step, now());
    ledger_.settle(*life_->audit);
    for (const auto& wait : waits_)
      if (!wait->answered) breach(fmt::format("a {} was never answered", wait->what));
    for (const auto& sink : turns_)
      if (sink->ends != 1) breach(fmt::format("a turn ended {} times", sink->ends));
    const jobs::QueueStatus status = life_->queue->status();
    if (!status.store_ok || status.running != 0 || status.batch != 0 || status.ask != 0)
      breach("the status does not show that all is over");
    for (const auto& [id, entry] : ledger_.entries())
      if (is_terminal(entry.row.state)) ++outcome_.counts.ended;
    for (const auto& [id, entry] : ledger_.entries())
      if (entry.row.state == State::expired) ++outcome_.counts.expired;
  }

  Dice dice_;
  const Planted planted_;
  jobs::Options options_;
  ScriptedModel::Habits habits_;
  Ledger ledger_;
  Outcome outcome_;
  std::deque<std::string> trace_;
  std::vector<Row> last_rows_;  ///< when a promise was broken
  WorldClock clock_;
  std::unique_ptr<Life> life_;
  int step_ = 0;

  std::map<GenerationId, LiveRun> runs_;
  std::list<std::shared_ptr<Wait>> waits_;
  std::list<Follower> followers_;
  std::map<Follower*, std::uint64_t> current_listen_;
  std::uint64_t listens_ = 0;
  std::vector<std::shared_ptr<Turn>> turns_;
  std::vector<json::object> unanswered_, retries_, bodies_;
  std::map<std::string, std::string> by_key_;
  std::vector<std::string> ids_;
  int labels_ = 0, turns_made_ = 0, asks_percent_ = 50;
  bool killers_ = false, jumps_ = false, bad_disks_ = false, power_cuts_ = false;
  bool stopping_ = false, life_was_killed_ = false;

  Weather weather_ = Weather::fine;
  bool synced_badly_ = false;
  std::int64_t bad_until_ms_ = 0, asleep_until_ms_ = 0;
  int crash_in_ = 0;
  bool crash_by_power_ = false;
  Image crash_image_;
};

}  // namespace

Outcome simulate(std::uint64_t seed, int steps, Planted planted) {
  return World(seed, planted).run(steps);
}

}  // namespace ponder::simulator
