#pragma once
// A queue on a database in a directory of its own, a fake generator, a clock moved by hand, and
// the asynchronous calls made to wait.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/ids.h"
#include "jobs/job_queue.h"
#include "tests/unit/jobs/fake_generator.h"

namespace ponder::jobs {

class HandClock : public Clock {
 public:
  std::int64_t wall_ms() const override { return wall_; }
  std::int64_t steady_ms() const override { return steady_; }
  void advance(std::int64_t ms) {
    wall_ += ms;
    steady_ += ms;
  }

 private:
  std::atomic<std::int64_t> wall_{1'800'000'000'000};
  std::atomic<std::int64_t> steady_{1000};
};

class TempDir {
 public:
  TempDir() : path_(std::filesystem::temp_directory_path() / ("ponder-jobs-" + random_hex(8))) {
    std::filesystem::create_directory(path_);
  }
  ~TempDir() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Raw SQL past the queue, as another program would. Returns SQLite's message, "" on success.
inline std::string raw_sql(const std::filesystem::path& file, const std::string& sql) {
  sqlite3* db = nullptr;
  if (sqlite3_open(file.c_str(), &db) != SQLITE_OK) return "cannot open";
  sqlite3_busy_timeout(db, 5000);
  char* message = nullptr;
  sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message);
  std::string out = message ? message : "";
  sqlite3_free(message);
  sqlite3_close(db);
  return out;
}
inline std::string raw_value(const std::filesystem::path& file, const std::string& sql) {
  sqlite3* db = nullptr;
  std::string out;
  if (sqlite3_open(file.c_str(), &db) != SQLITE_OK) return out;
  sqlite3_busy_timeout(db, 5000);
  sqlite3_exec(
      db, sql.c_str(),
      [](void* to, int, char** values, char**) {
        *static_cast<std::string*>(to) = values[0] ? values[0] : "";
        return 0;
      },
      &out, nullptr);
  sqlite3_close(db);
  return out;
}

class QueueTest : public ::testing::Test {
 protected:
  QueueTest() { options.database = dir / "ponder.db"; }
  ~QueueTest() override { queue.reset(); }

  void open() {
    auto opened = JobQueue::open(options, generator, clock);
    ASSERT_TRUE(opened) << opened.error().message;
    queue = std::move(*opened);
  }
  /// As after kill -9: a second queue on a copy of the files as they are now.
  void reopen_after_crash(const std::function<void()>& after_copy = {}) {
    const auto copy = dir / "crashed";
    std::filesystem::create_directory(copy);
    for (const char* name : {"ponder.db", "ponder.db-wal"})
      std::filesystem::copy_file(dir / name, copy / name);
    if (after_copy) after_copy();
    queue.reset();
    for (const char* name : {"ponder.db", "ponder.db-wal", "ponder.db-shm"})
      std::filesystem::remove(dir / name);
    for (const char* name : {"ponder.db", "ponder.db-wal"})
      std::filesystem::rename(copy / name, dir / name);
    std::filesystem::remove_all(copy);
    open();
  }

  template <class T>
  static T await(std::future<T>& future) {
    if (future.wait_for(FakeGenerator::kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      std::abort();
    }
    return future.get();
  }

  Result<Submitted> submit(const json::object& body) {
    auto spec = parse_job_spec(body);
    if (!spec) return fail(spec.error());
    auto promise = std::make_shared<std::promise<Result<Submitted>>>();
    auto future = promise->get_future();
    queue->submit(std::move(*spec), [promise](Result<Submitted> r) { promise->set_value(r); });
    return await(future);
  }
  std::string submit_id(const json::object& body) {
    auto r = submit(body);
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? std::string(r->envelope.at("job_id").as_string()) : std::string();
  }
  std::future<Result<json::object>> get_later(const std::string& id, std::int64_t wait_ms) {
    auto promise = std::make_shared<std::promise<Result<json::object>>>();
    queue->get(id, wait_ms, [promise](Result<json::object> r) { promise->set_value(r); });
    return promise->get_future();
  }
  Result<json::object> get(const std::string& id) {
    auto future = get_later(id, 0);
    return await(future);
  }
  std::string state(const std::string& id) {
    auto r = get(id);
    return r ? std::string(r->at("state").as_string()) : r.error().message;
  }
  /// The envelope once the job is terminal: woken, not polled.
  json::object ended(const std::string& id) {
    for (;;) {
      auto future = get_later(id, 3'600'000);
      Result<json::object> r = await(future);
      if (!r) {
        ADD_FAILURE() << r.error().message;
        return {};
      }
      const auto s = state_from(std::string_view(r->at("state").as_string()));
      if (is_terminal(*s)) return *r;
    }
  }
  Result<ResultPage> result(const std::string& id, Part part = Part::answer,
                            std::int64_t offset = 0, std::int64_t limit = -1) {
    auto promise = std::make_shared<std::promise<Result<ResultPage>>>();
    auto future = promise->get_future();
    queue->result(id, part, offset, limit,
                  [promise](Result<ResultPage> r) { promise->set_value(r); });
    return await(future);
  }
  std::future<Result<json::object>> cancel_later(const std::string& id) {
    auto promise = std::make_shared<std::promise<Result<json::object>>>();
    queue->cancel(id, [promise](Result<json::object> r) { promise->set_value(r); });
    return promise->get_future();
  }
  Result<json::object> cancel(const std::string& id) {
    auto future = cancel_later(id);
    return await(future);
  }
  Result<void> remove(const std::string& id) {
    auto promise = std::make_shared<std::promise<Result<void>>>();
    auto future = promise->get_future();
    queue->remove(id, [promise](Result<void> r) { promise->set_value(r); });
    return await(future);
  }
  Result<json::object> pin(const std::string& id, bool pinned) {
    auto promise = std::make_shared<std::promise<Result<json::object>>>();
    auto future = promise->get_future();
    queue->pin(id, pinned, [promise](Result<json::object> r) { promise->set_value(r); });
    return await(future);
  }
  Result<ListPage> list(ListFilter filter) {
    auto promise = std::make_shared<std::promise<Result<ListPage>>>();
    auto future = promise->get_future();
    queue->list(std::move(filter), [promise](Result<ListPage> r) { promise->set_value(r); });
    return await(future);
  }
  /// Lets timers that are due by the hand clock fire: any message makes the queue look.
  void nudge() { list({}); }
  void advance(std::int64_t ms) {
    nudge();  // what was said before the clock moves is done before it moves
    clock.advance(ms);
    nudge();
    nudge();  // what the timers posted is done as well
  }
  /// What was stored of a job's text, once it has all `bytes`.
  void flushed(const std::string& id, std::int64_t bytes) {
    for (int i = 0; i < 200; ++i) {
      advance(options.flush_ms);
      if (raw_value(options.database,
                    "SELECT coalesce(sum(length(c.text)), 0) FROM chunk c JOIN job j ON "
                    "j.seq = c.job WHERE j.id = '" +
                        id + "'") == std::to_string(bytes))
        return;
    }
    FAIL() << "the text did not reach the disk";
  }

  TempDir dir;
  HandClock clock;
  FakeGenerator generator;
  Options options;
  std::unique_ptr<JobQueue> queue;  // ends before the generator
};

inline std::string text_of(const json::object& object, const char* key) {
  const json::value& value = object.at(key);
  return value.is_string() ? std::string(value.as_string()) : std::string("(null)");
}

}  // namespace ponder::jobs
