#pragma once
// Server-sent events from bytes that may be split anywhere (WHATWG HTML, 9.2.6). Comments and
// unknown fields are ignored; lines end with LF, CR or CR LF.
#include <functional>
#include <string>
#include <string_view>

#include "clients/cpp/daemon_client.h"
#include "engine/base/error.h"

namespace ponder::client {

class SseReader {
 public:
  /// Calls `on_event` for each event that `bytes` completes; false from it stops the reading, also
  /// of what is left in `bytes`. As the standard has it, an event without data is dropped, the last
  /// `id` stays until another comes, and what is not ended by an empty line is never reported.
  /// too_large for an event over 16 MiB.
  Result<void> feed(std::string_view bytes,
                    const std::function<bool(const ServerEvent&)>& on_event);
  bool stopped() const { return stopped_; }

 private:
  void take_line(const std::function<bool(const ServerEvent&)>& on_event);

  std::string line_;
  ServerEvent event_;
  bool has_data_ = false;
  bool after_cr_ = false;  ///< a LF that comes now belongs to the line before
  bool at_start_ = true;   ///< a byte order mark may still come
  bool stopped_ = false;
};

}  // namespace ponder::client
