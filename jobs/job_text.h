#pragma once
// The text of one job in the order in which it was written: reasoning and answer, each byte with
// its channel. Offsets are bytes of the whole; characters are Unicode code points. Plain value.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator/generator.h"

namespace ponder::jobs {

class JobText {
 public:
  /// `text` is whole UTF-8 characters.
  void append(Channel channel, std::string_view text);
  /// Forgets all from byte `size` on.
  void truncate(std::int64_t size);

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  std::int64_t chars(Channel channel) const {
    return channel == Channel::reasoning ? reasoning_chars_ : answer_chars_;
  }
  /// The whole text of one channel.
  std::string of(Channel channel) const;

  /// Calls `piece` for the bytes [from, to) in order, each time with text of one channel of at
  /// most 64 KiB and the offset of its end. A `from` or piece border inside a character moves
  /// back to the character's start.
  void pieces(std::int64_t from, std::int64_t to,
              const std::function<void(Channel, std::string_view, std::int64_t end)>& piece) const;

  /// How many bytes of `text` stand at `offset` in this channel, as whole characters.
  std::int64_t matches_at(std::int64_t offset, Channel channel, std::string_view text) const;

  /// SHA-256 (32 bytes) of the bytes with their channels.
  std::string sha256() const;

 private:
  struct Run {
    std::int64_t begin;
    Channel channel;
  };
  std::size_t run_at(std::int64_t offset) const;
  std::int64_t run_end(std::size_t run) const;

  std::string bytes_;
  std::vector<Run> runs_;  ///< by begin; neighbours differ in channel
  std::int64_t reasoning_chars_ = 0;
  std::int64_t answer_chars_ = 0;
};

/// SHA-256 of `bytes`, 32 raw bytes.
std::string sha256_of(std::string_view bytes);

}  // namespace ponder::jobs
