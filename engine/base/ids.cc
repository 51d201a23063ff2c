#include "engine/base/ids.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

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
  static std::mutex mutex;
  static std::int64_t last_ms = -1;
  static std::array<std::uint8_t, 16> tail{};  // 16 digits of 5 bits
  const std::lock_guard lock(mutex);
  if (wall_ms > last_ms) {
    last_ms = wall_ms;
    std::array<std::uint8_t, 16> random{};
    fill_random(random.data(), random.size());
    for (std::size_t i = 0; i < tail.size(); ++i) tail[i] = random[i] & 31;
    tail[0] &= 15;  // leaves room to count up
  } else {  // the same millisecond, or a clock that went back: count on from the last id
    for (std::size_t i = tail.size(); i-- > 0;) {
      tail[i] = (tail[i] + 1) & 31;
      if (tail[i] != 0) break;
    }
  }
  std::string id(26, '0');
  std::int64_t t = last_ms;
  for (int i = 9; i >= 0; --i, t >>= 5) id[static_cast<std::size_t>(i)] = kAlphabet[t & 31];
  for (std::size_t i = 0; i < tail.size(); ++i) id[10 + i] = kAlphabet[tail[i]];
  return id;
}

bool is_job_id(std::string_view text) {
  return text.size() == 26 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}
}  // namespace ponder
