#pragma once
// The daemon's job endpoints, as the tools use them. All block, all end early with `cancelled`
// when nobody waits any more.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "clients/cpp/job_look.h"
#include "mcp/tools/tool.h"

namespace ponder::mcp {

/// POST /v1/jobs. The envelope, of the new job or of the existing one that answers for it.
Result<json::object> post_job(const ToolContext& context, ToolCall& call, json::object body);

/// The envelope without its texts.
Result<json::object> get_job(const ToolContext& context, client::Interrupt* interrupt,
                             std::string_view id, const client::JobLook& look = {});

/// A piece of one of a job's texts. Offsets and counts are Unicode code points.
struct TextPage {
  std::string text;
  std::int64_t offset = 0;
  std::int64_t total_chars = 0;
  std::int64_t next_offset = -1;  ///< -1: this was the end
};
/// `limit` < 0: all of it.
Result<TextPage> get_text(const ToolContext& context, ToolCall& call, std::string_view id,
                          std::string_view part, std::int64_t offset, std::int64_t limit);

/// Waits until `enough` says so of the job's envelope, which now is `job`, or `deadline_ms` (of
/// context.clock's steady time) has passed, and returns the latest envelope either way; one that is
/// not terminal is told. Reports progress meanwhile, if wanted. A daemon that goes away is asked
/// again until the deadline, a few times.
Result<json::object> wait_for_job(const ToolContext& context, ToolCall& call, json::object job,
                                  std::int64_t deadline_ms,
                                  const std::function<bool(const json::object&)>& enough);

/// The same for several jobs: until one of them differs from `before` in state or phase.
Result<std::vector<json::object>> wait_for_any(const ToolContext& context, ToolCall& call,
                                               std::vector<json::object> before,
                                               std::int64_t deadline_ms);

bool is_terminal(std::string_view state);

// Reading an envelope: absent, null or of another type gives the fallback.
std::string text_of(const json::object& envelope, std::string_view key);
std::int64_t whole_of(const json::object& envelope, std::string_view key,
                      std::int64_t fallback = 0);
double number_of(const json::object& envelope, std::string_view key, double fallback = 0);
bool flag_of(const json::object& envelope, std::string_view key);
/// A field that is an object, or an empty one.
const json::object& object_of(const json::object& envelope, std::string_view key);

}  // namespace ponder::mcp
