#include "clients/cpp/job_look.h"

#include <fmt/format.h>

#include <vector>

namespace ponder::client {
namespace {
std::string text_of(const json::object& envelope, std::string_view key) {
  const json::value* value = envelope.if_contains(key);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}
}  // namespace

std::string look_target(std::string_view id, const JobLook& look) {
  std::vector<std::string> query;
  // Fixed: the daemon takes no exponent.
  if (look.wait_s > 0) query.push_back(fmt::format("wait_s={:.3f}", look.wait_s));
  if (look.seen) {
    const std::string phase = text_of(*look.seen, "phase");
    query.push_back("seen=" + text_of(*look.seen, "state") + (phase.empty() ? "" : ":" + phase));
  }
  if (look.told) query.push_back("told=true");
  return fmt::format("/v1/jobs/{}{}{}", id, query.empty() ? "" : "?", fmt::join(query, "&"));
}

bool has_moved(const json::object& before, const json::object& after) {
  return text_of(before, "state") != text_of(after, "state") ||
         text_of(before, "phase") != text_of(after, "phase");
}

}  // namespace ponder::client
