#pragma once
// GET /v1/jobs/{id}, as ponder and ponder-mcp look at a job.
#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace ponder::client {

struct JobLook {
  double wait_s = 0;                   ///< the daemon answers when state or phase change
  const json::object* seen = nullptr;  ///< an envelope; at once where they are no longer its own
  bool told = false;  ///< the caller learns the id and may come back: an ask is kept for it
};

/// Path and query; `id` is a job's.
std::string look_target(std::string_view id, const JobLook& look = {});

/// Whether state or phase of two envelopes differ.
bool has_moved(const json::object& before, const json::object& after);

}  // namespace ponder::client
