#pragma once
// The owner's command for jobs that have ended (setting on_done): run with the job's id and state,
// by no shell, one at a time, with nothing of this process but PATH, HOME and LANG. Thread-safe.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ponder::daemon {

class DoneCommand {
 public:
  /// `argv` may be empty: then nothing ever runs. A program without a slash is looked up in PATH.
  /// One that runs longer than `bound` is killed with all it has started in its process group.
  explicit DoneCommand(std::vector<std::string> argv,
                       std::chrono::milliseconds bound = std::chrono::seconds(30));
  /// Kills what runs; what waits is dropped.
  ~DoneCommand();
  DoneCommand(const DoneCommand&) = delete;
  DoneCommand& operator=(const DoneCommand&) = delete;

  /// What runs for jobs that end from now on.
  void set(std::vector<std::string> argv);
  /// Returns at once. Beyond 1,000 that wait, the oldest is dropped with a word in the log.
  void run(const std::string& id, std::string_view state);

 private:
  void loop();
  void run_now(const std::vector<std::string>& argv);

  const std::chrono::milliseconds bound_;
  std::mutex mutex_;
  std::vector<std::string> argv_;  // guarded by mutex_
  std::condition_variable changed_;
  std::deque<std::vector<std::string>> waiting_;  // guarded by mutex_
  bool over_ = false;                             // guarded by mutex_
  std::thread thread_;  // guarded by mutex_ until the destructor; made with the first command
};

}  // namespace ponder::daemon
