#pragma once
// The command line of the daemon that runs, kept on disk until its clean end: a client that finds
// the daemon dead starts the next one with the same words, so that a crash does not change the
// model under a running job. read by clients/cpp/autostart.cc.
#include <filesystem>
#include <string>
#include <vector>

namespace ponder::daemon {

/// argv without the program, --detach and --home, file names made absolute.
std::vector<std::string> words_to_keep(int argc, const char* const* argv,
                                       const std::filesystem::path& working_dir);

/// Written when made and removed when destroyed. That it cannot be written is only logged: the
/// daemon is worth more than its memory of how it was started.
class StartedWith {
 public:
  StartedWith(std::filesystem::path file, const std::vector<std::string>& words);
  ~StartedWith();
  StartedWith(const StartedWith&) = delete;
  StartedWith& operator=(const StartedWith&) = delete;

 private:
  const std::filesystem::path file_;
};

}  // namespace ponder::daemon
