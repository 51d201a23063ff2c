#pragma once
// Checksums over what is stored. SQLite notices damage to its own structure only: a flipped bit in
// a text or a state would be read back as if it had been written. CRC-32 (IEEE 802.3). Pure, but
// for add_crc_function.
#include <cstdint>
#include <string_view>

struct sqlite3;

namespace ponder::jobs {

/// Of a row of `chunk`: everything but the checksum itself.
std::int64_t chunk_crc(std::int64_t job, std::int64_t seq, std::int64_t attempt,
                       std::int64_t channel, std::string_view text, std::int64_t token_count,
                       std::string_view tokens);

/// Makes ponder_crc32(v, ...) known to a connection: the checksum over the types and values of all
/// its arguments, so that a number that became a text counts as changed. Statements only; a schema
/// cannot call it.
void add_crc_function(sqlite3* db);

}  // namespace ponder::jobs
