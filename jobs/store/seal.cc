#include "jobs/store/seal.h"

#include <sqlite3.h>

#include <array>
#include <boost/crc.hpp>
#include <cstring>

#include "engine/base/check.h"

namespace ponder::jobs {
namespace {

void add_number(boost::crc_32_type& crc, std::int64_t number) {
  std::array<unsigned char, 8> bytes{};  // little endian
  for (std::size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(number) >> (8 * i));
  crc.process_bytes(bytes.data(), bytes.size());
}

void crc_of_values(sqlite3_context* context, int count, sqlite3_value** values) {
  boost::crc_32_type crc;
  for (int i = 0; i < count; ++i) {
    const int type = sqlite3_value_type(values[i]);
    add_number(crc, type);
    switch (type) {
      case SQLITE_NULL:
        break;
      case SQLITE_INTEGER:
        add_number(crc, sqlite3_value_int64(values[i]));
        break;
      default: {
        const void* bytes = sqlite3_value_blob(values[i]);  // a text or REAL as its UTF-8
        const int size = sqlite3_value_bytes(values[i]);
        add_number(crc, size);
        if (size > 0) crc.process_bytes(bytes, static_cast<std::size_t>(size));
      }
    }
  }
  sqlite3_result_int64(context, static_cast<std::int64_t>(crc.checksum()));
}
}  // namespace

std::int64_t chunk_crc(std::int64_t job, std::int64_t seq, std::int64_t attempt,
                       std::int64_t channel, std::string_view text, std::int64_t token_count,
                       std::string_view tokens) {
  boost::crc_32_type crc;
  for (const std::int64_t number :
       {job, seq, attempt, channel, static_cast<std::int64_t>(text.size()), token_count})
    add_number(crc, number);
  crc.process_bytes(text.data(), text.size());
  crc.process_bytes(tokens.data(), tokens.size());
  return static_cast<std::int64_t>(crc.checksum());
}

void add_crc_function(sqlite3* db) {
  const int code = sqlite3_create_function_v2(
      db, "ponder_crc32", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
      crc_of_values, nullptr, nullptr, nullptr);
  CHECK(code == SQLITE_OK);
}

}  // namespace ponder::jobs
