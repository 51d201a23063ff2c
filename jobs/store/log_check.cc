#include "jobs/store/log_check.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/base/unique_fd.h"
#include "jobs/store/database_file.h"

namespace ponder::jobs {
namespace {

constexpr std::size_t kPage = 4096;         // every database of ours has this size
constexpr std::uint32_t kFormat = 3007000;  // of the log and its index
constexpr std::size_t kHeader = 32;
constexpr std::size_t kFrameHeader = 24;
constexpr std::size_t kFrame = kFrameHeader + kPage;
constexpr std::uint32_t kNoPage = 0x7ffffffe;  // beyond every database; 0 would end the log
using Frame = std::array<unsigned char, kFrame>;

std::uint32_t big_endian(const unsigned char* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}
void put_big_endian(unsigned char* p, std::uint32_t value) {
  for (int i = 3; i >= 0; --i, value >>= 8)
    p[i] = static_cast<unsigned char>(value);
}

struct Sum {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  bool operator==(const Sum& other) const { return a == other.a && b == other.b; }
};

/// s0 += x[i] + s1; s1 += x[i + 1] + s0, over pairs of 32-bit words in the byte order of the
/// writer.
Sum add(Sum sum, const unsigned char* bytes, std::size_t size, bool big) {
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    std::uint32_t x = big_endian(bytes + i);
    std::uint32_t y = big_endian(bytes + i + 4);
    if (!big) {
      x = __builtin_bswap32(x);
      y = __builtin_bswap32(y);
    }
    sum.a += x + sum.b;
    sum.b += y + sum.a;
  }
  return sum;
}
Sum sum_at(const unsigned char* p) {
  return {big_endian(p), big_endian(p + 4)};
}

class LogFile {
 public:
  explicit LogFile(const std::filesystem::path& file) : file_(file, RawFile::Kind::log) {}
  bool is_open() const { return file_.is_open(); }

  /// Reads the header: false where there is none whole.
  bool begin() { return read_at(0, header_.data(), kHeader); }
  bool header_holds() const {
    return (big_endian(&header_[0]) & ~1u) == 0x377f0682u && big_endian(&header_[8]) == kPage &&
           add({}, header_.data(), 24, (header_[3] & 1) != 0) == sum_at(&header_[24]);
  }
  /// The byte order of the checksums: the writer's own. A header that does not hold does not tell.
  bool big() const {
    return header_holds() ? (header_[3] & 1) != 0 : std::endian::native == std::endian::big;
  }
  Sum first_sum() const { return sum_at(&header_[24]); }
  const unsigned char* salts() const { return &header_[16]; }
  unsigned char* header() { return header_.data(); }

  bool frame(std::int64_t number, Frame& into) const {
    return read_at(offset_of(number), into.data(), kFrame);
  }
  static std::int64_t offset_of(std::int64_t number) {
    return static_cast<std::int64_t>(kHeader) + number * static_cast<std::int64_t>(kFrame);
  }

 private:
  bool read_at(std::int64_t offset, unsigned char* into, std::size_t size) const {
    return file_.read(offset, into, size);
  }
  RawFile file_;
  std::array<unsigned char, kHeader> header_{};
};

Sum sum_of(const Frame& frame, Sum before, bool big) {
  return add(add(before, frame.data(), 8, big), frame.data() + kFrameHeader, kPage, big);
}
bool has_salts(const Frame& frame, const unsigned char* salts) {
  return std::memcmp(frame.data() + 8, salts, 8) == 0;
}

/// The frames behind `number`, which does not hold, that continue the chain of checksums.
void look_behind(const LogFile& log, std::int64_t number, const unsigned char* salts,
                 const std::vector<Sum>& seeds, LogState& state) {
  for (const Sum seed : seeds) {
    Sum sum = seed;
    Frame frame;
    LogState found;
    for (std::int64_t n = number + 1; log.frame(n, frame); ++n) {
      if (!has_salts(frame, salts)) break;
      const Sum next = sum_of(frame, sum, log.big());
      if (!(next == sum_at(&frame[16]))) break;
      sum = next;
      ++found.lost_frames;
      if (big_endian(&frame[4]) != 0) ++found.lost_commits;
    }
    if (found.lost_frames > state.lost_frames) {
      state.lost_frames = found.lost_frames;
      state.lost_commits = found.lost_commits;
    }
  }
}
LogState check_frames(LogFile& log) {
  LogState state;
  Frame frame;
  if (!log.header_holds()) {
    // SQLite takes such a log for empty. Frames that follow from each other say that it was not.
    if (!log.frame(0, frame)) return state;
    std::array<unsigned char, 8> salts{};
    std::memcpy(salts.data(), frame.data() + 8, 8);
    look_behind(log, 0, salts.data(), {sum_at(&frame[16])}, state);
    state.verdict = state.lost_commits > 0 ? LogState::Verdict::damaged : LogState::Verdict::torn;
    return state;
  }
  Sum sum = log.first_sum();
  for (; log.frame(state.frames, frame); ++state.frames) {
    const Sum next = sum_of(frame, sum, log.big());
    const bool salted = has_salts(frame, log.salts());
    if (salted && next == sum_at(&frame[16]) && big_endian(&frame[0]) != 0) {
      sum = next;
      continue;
    }
    // Its own checksum may be what was damaged, or what it is made of.
    look_behind(log, state.frames, log.salts(), {sum_at(&frame[16]), next}, state);
    if (state.lost_commits > 0)
      state.verdict = LogState::Verdict::damaged;
    else if (salted)
      state.verdict = LogState::Verdict::torn;
    return state;  // else frames of an earlier round of the log: its regular end
  }
  return state;
}

/// What SQLite's shared memory said when its last user ended: its layout is that of
/// sqlite.org/walformat.html, 2, in the byte order of the machine.
struct Index {
  std::int64_t committed = 0;  ///< frames
  std::int64_t moved = 0;      ///< of them already in the database file
  std::array<unsigned char, 8> salts{};
};
std::optional<Index> read_index(const std::filesystem::path& file) {
  std::array<unsigned char, 100> bytes{};
  const RawFile raw(file, RawFile::Kind::log);
  if (!raw.read(0, bytes.data(), bytes.size())) return std::nullopt;
  const bool big = std::endian::native == std::endian::big;
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, &bytes[at], sizeof value);
    return value;
  };
  const Sum sum = add({}, bytes.data(), 40, big);
  if (number(0) != kFormat || std::memcmp(&bytes[0], &bytes[48], 48) != 0 || number(40) != sum.a ||
      number(44) != sum.b)
    return std::nullopt;
  Index index{number(16), number(96), {}};
  std::memcpy(index.salts.data(), &bytes[32], 8);
  return index;
}
}  // namespace

Result<LogState> check_log(const std::filesystem::path& file, const std::filesystem::path& index) {
  LogFile log(file);
  const std::optional<Index> known = read_index(index);
  LogState state;
  if (!log.is_open() || !log.begin()) {
    if (known && known->committed > known->moved) state.verdict = LogState::Verdict::cut;
    return state;
  }
  state = check_frames(log);
  if (state.verdict == LogState::Verdict::damaged || !known) return state;
  if (!log.header_holds()) {
    // SQLite replays nothing of it. While a header is written, the index knows of no frames.
    if (known->committed > known->moved) state.verdict = LogState::Verdict::cut;
    return state;
  }
  if (std::memcmp(known->salts.data(), log.salts(), 8) != 0) return state;
  state.verdict = known->committed > state.frames ? LogState::Verdict::cut
                                                  : LogState::Verdict::whole;  // a crash's remains
  return state;
}

Result<void> mend_log(const std::filesystem::path& file) {
  const UniqueFd out(::open(file.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  const auto write = [&](std::int64_t offset, const unsigned char* bytes, std::size_t size) {
    return ::pwrite(out.get(), bytes, size, static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(size);
  };
  LogFile log(file);
  Frame frame;
  if (!log.is_open() || !log.begin() || !log.frame(0, frame))
    return fail(ErrorCode::storage, fmt::format("cannot read {}", file.string()), kMendDisk);
  if (!log.header_holds()) {
    // What a log of ours begins with; the salts are those of its frames, and zero stays zero.
    const bool big = log.big();
    unsigned char* header = log.header();
    put_big_endian(header, 0x377f0682u | (big ? 1u : 0u));
    put_big_endian(header + 4, kFormat);
    put_big_endian(header + 8, kPage);
    Frame second;
    const bool two = log.frame(1, second);
    std::memcpy(header + 16, (two ? second : frame).data() + 8, 8);
    const Sum sum = add({}, header, 24, log.big());
    put_big_endian(header + 24, sum.a);
    put_big_endian(header + 28, sum.b);
    if (!write(0, header, kHeader))
      return fail(ErrorCode::storage, fmt::format("cannot write {}", file.string()), kMendDisk);
  }
  const LogState state = check_frames(log);
  const std::int64_t last = state.frames + state.lost_frames;  // the damaged one counts as well
  Sum sum = log.first_sum();
  for (std::int64_t n = 0; n <= last && log.frame(n, frame); ++n) {
    std::memcpy(frame.data() + 8, log.salts(), 8);
    if (big_endian(frame.data()) == 0) put_big_endian(frame.data(), kNoPage);
    sum = sum_of(frame, sum, log.big());
    put_big_endian(&frame[16], sum.a);
    put_big_endian(&frame[20], sum.b);
    if (!write(LogFile::offset_of(n), frame.data(), kFrame))
      return fail(ErrorCode::storage, fmt::format("cannot write {}", file.string()), kMendDisk);
  }
  return {};
}

}  // namespace ponder::jobs
