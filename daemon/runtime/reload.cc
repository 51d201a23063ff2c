#include "daemon/runtime/reload.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "daemon/config/keys.h"
#include "engine/base/log.h"
#include "engine/base/sentence.h"

namespace ponder::daemon {

Reloaded merge_live(const Config& running, const Config& read) {
  Reloaded out{running, {}, {}};
  for (const Key& key : keys()) {
    const json::value value = key.get(read);
    if (value == key.get(running)) continue;
    // It was checked when it was read.
    if (key.live && key.set(out.config, value))
      out.changed.push_back(key.name);
    else
      out.restarts.push_back(key.name);
    const auto origin = read.origin.find(key.name);
    if (!key.live) continue;
    if (origin == read.origin.end())
      out.config.origin.erase(key.name);
    else
      out.config.origin[key.name] = origin->second;
  }
  return out;
}

bool Reloader::again() {
  const Result<Config> read = read_();
  if (!read) {
    ++refused_;
    log_error(fmt::format("the settings stay as they are ({} times refused so far): {}", refused_,
                          in_one_sentence(read.error())));
    return false;
  }
  Reloaded next = merge_live(running_, *read);
  if (!next.changed.empty()) {
    apply_(next.config);
    log_info(fmt::format("settings read again; in force now: {}", fmt::join(next.changed, ", ")));
  } else {
    log_info("settings read again; nothing changed that may change now");
  }
  if (!next.restarts.empty())
    log_warn(fmt::format("`ponder restart` puts these in force: {}",
                         fmt::join(next.restarts, ", ")));
  running_ = std::move(next.config);
  return true;
}

}  // namespace ponder::daemon
