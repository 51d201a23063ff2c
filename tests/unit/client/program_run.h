#pragma once
// Running a real program in a test, and directories that go away with it.
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace ponder::client_test {

/// A directory under the system's temporary one, removed with everything in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct Ended {
  int exit_code = -1;  ///< 128 + signal if it was killed
  std::string out;
  std::string err;
  /// stdout as one JSON document.
  json::object document() const;
};

struct RunOptions {
  std::string program;
  std::vector<std::string> arguments;
  std::optional<std::string> input = {};  ///< stdin; /dev/null if absent
  std::string directory = {};             ///< the working directory, if not this one's
  std::map<std::string, std::string> environment = {};  ///< in addition to HOME and PATH
  bool terminal = false;                                ///< stdout and stderr are a pseudo terminal
};

/// A program that runs until it ends by itself, is signalled, or twenty seconds are over.
class Running {
 public:
  explicit Running(const RunOptions& options);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  void signal(int number) const;
  pid_t pid() const { return pid_; }
  Ended wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

Ended run(const RunOptions& options);

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);

}  // namespace ponder::client_test
