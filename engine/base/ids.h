#pragma once
// Job ids: 26 characters of [a-z0-9], 10 of time and 16 of randomness (the ULID layout in lower
// case), sortable by creation also within one millisecond of one process.
#include <cstdint>
#include <string>
#include <string_view>

namespace ponder {

/// A new id for `wall_ms`. Thread-safe; ids of one process strictly increase.
std::string new_job_id(std::int64_t wall_ms);
/// Ids made from now on come after this one, also where the clock has gone back since it was made.
/// What is no id of new_job_id() changes nothing. Thread-safe.
void continue_job_ids(std::string_view last);
/// Whether `text` has the form of an id: exactly 26 of [a-z0-9].
bool is_job_id(std::string_view text);
/// `bytes` random bytes from the kernel as lower-case hex.
std::string random_hex(std::size_t bytes);
/// 64 random bits from the kernel.
std::uint64_t random_u64();

}  // namespace ponder
