#pragma once
// A database with jobs of every kind, made once, and copies of it that an input damages: bits, runs
// of bytes, ends cut off.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tests/fuzz/choices.h"

namespace ponder::fuzz {

struct Damaged {
  std::string database, log, index;  ///< index: empty where there is none
};

class StoredJobs {
 public:
  /// Ended and live jobs in the file, more of them in its log, as kill -9 leaves both.
  static const StoredJobs& get();

  const Damaged& whole() const { return whole_; }
  /// The text of each ended job by its id. The live ones and their ids: their text so far.
  const std::map<std::string, std::string>& ended() const { return ended_; }
  const std::map<std::string, std::string>& live() const { return live_; }
  /// Whether a job is in the log and nowhere else.
  bool in_log(const std::string& id) const { return id >= first_in_log_; }
  /// Up to eight changes of the bytes, as the input says.
  Damaged damaged(Choices& choose) const;

 private:
  StoredJobs();
  Damaged whole_;
  std::map<std::string, std::string> ended_, live_;
  std::string first_in_log_;
};

/// A directory of this process, emptied at every call.
const std::filesystem::path& empty_directory();
void write_file(const std::filesystem::path& file, const std::string& bytes);

}  // namespace ponder::fuzz
