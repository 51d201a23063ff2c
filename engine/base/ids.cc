#include "engine/base/ids.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <tuple>

#include "engine/base/check.h"

namespace ponder {
namespace {
constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";

void fill_random(void* out, std::size_t n) {
  auto* p = static_cast<unsigned char*>(out);
  while (n > 0) {
    const std::size_t want = std::min<std::size_t>(n, 256);
#if defined(__APPLE__)
    CHECK(getentropy(p, want) == 0);
    const std::size_t got = want;
#else
    const ssize_t r = getrandom(p, want, 0);
    if (r < 0 && errno == EINTR) continue;
    CHECK(r > 0);
    const auto got = static_cast<std::size_t>(r);
#endif
    p += got;
    n -= got;
  }
}

struct LastId {
  std::mutex mutex;
  std::int64_t ms = -1;
  std::array<std::uint8_t, 16> tail{};  ///< digits of 5 bits
} last_id;
}  // namespace

std::uint64_t random_u64() {
  std::uint64_t v = 0;
  fill_random(&v, sizeof v);
  return v;
}

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  fill_random(raw.data(), bytes);
  std::string out;
  for (unsigned char c : raw) {
    out += "0123456789abcdef"[c >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

std::string new_job_id(std::int64_t wall_ms) {
  const std::lock_guard lock(last_id.mutex);
  if (wall_ms > last_id.ms) {
    last_id.ms = wall_ms;
    std::array<std::uint8_t, 16> random{};
    fill_random(random.data(), random.size());
    for (std::size_t i = 0; i < random.size(); ++i)
      last_id.tail[i] = random[i] & 31;
    last_id.tail[0] &= 15;  // leaves room to count up
  } else {  // the same millisecond, or a clock that went back: count on from the last id
    std::size_t i = last_id.tail.size();
    while (i-- > 0) {
      last_id.tail[i] = (last_id.tail[i] + 1) & 31;
      if (last_id.tail[i] != 0) break;
    }
    if (i == SIZE_MAX) ++last_id.ms;  // every digit has come round
  }
  std::string id(26, '0');
  std::int64_t t = last_id.ms;
  for (int i = 9; i >= 0; --i, t >>= 5)
    id[static_cast<std::size_t>(i)] = kAlphabet[t & 31];
  for (std::size_t i = 0; i < last_id.tail.size(); ++i)
    id[10 + i] = kAlphabet[last_id.tail[i]];
  return id;
}

void continue_job_ids(std::string_view last) {
  if (!is_job_id(last)) return;
  std::array<std::uint8_t, 26> digits{};
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t digit = kAlphabet.find(last[i]);
    if (digit == kAlphabet.npos) return;
    digits[i] = static_cast<std::uint8_t>(digit);
  }
  if (digits[0] >= 16) return;  // 18,000 years from now: not made by a clock
  std::int64_t ms = 0;
  for (std::size_t i = 0; i < 10; ++i)
    ms = ms << 5 | digits[i];
  std::array<std::uint8_t, 16> tail{};
  std::copy(digits.begin() + 10, digits.end(), tail.begin());
  const std::lock_guard lock(last_id.mutex);
  if (std::tie(ms, tail) <= std::tie(last_id.ms, last_id.tail)) return;
  last_id.ms = ms;
  last_id.tail = tail;
}

bool is_job_id(std::string_view text) {
  return text.size() == 26 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}
}  // namespace ponder
