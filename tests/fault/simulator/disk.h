#pragma once
// A disk in memory under SQLite, that can fail and lose what was not synced. It registers itself as
// SQLite's default file layer, once for the process; the files that a thread opens lie on the disk
// that is current on that thread. A directory of the real file system must exist beside it, for
// what Ponder looks at without SQLite. A disk belongs to one thread.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fault/simulator/dice.h"

namespace ponder::simulator {

/// What lies on a disk: name and bytes.
using Image = std::map<std::string, std::string>;

class Disk {
 public:
  explicit Disk(Image image = {});
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// Files opened by this thread from now on are of this disk.
  void make_current();

  /// As a process finds it after another one was killed now.
  Image as_written() const;
  /// As it may be found after the power went now: of what was written since the last sync of a
  /// file, any part is there, in pieces of 512 bytes.
  Image after_power_cut(Dice& dice) const;

  enum class Change { write, truncate, sync, remove };
  /// Asked before every change; what it gives is what SQLite hears (0: the change is made).
  std::function<int(Change)> before_change = [](Change) { return 0; };
  bool sync_does_nothing = false;  ///< a planted bug

  struct File;
  std::shared_ptr<File> find(const std::string& name, bool make);
  void remove(const std::string& name) { files_.erase(name); }

 private:
  std::map<std::string, std::shared_ptr<File>> files_;
};

}  // namespace ponder::simulator
