#include "jobs/job_text.h"

#include <openssl/evp.h>

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/utf8.h"

namespace ponder::jobs {
namespace {

constexpr std::int64_t kMaxPieceBytes = 64 << 10;

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The start of the character that byte `at` belongs to.
std::int64_t character_start(std::string_view text, std::int64_t at) {
  while (at > 0 && at < static_cast<std::int64_t>(text.size()) &&
         is_continuation(text[static_cast<std::size_t>(at)]))
    --at;
  return at;
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    // Looked up once: each hash would look EVP_sha256() up again, in tables that OpenSSL 3.5 reads
    // without a lock, which no thread sanitizer can follow.
    static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    CHECK(context_ && algorithm && EVP_DigestInit_ex(context_, algorithm, nullptr) == 1);
  }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256() { EVP_MD_CTX_free(context_); }
  void add(std::string_view bytes) {
    CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
  }
  std::string finish() {
    std::string out(32, '\0');
    CHECK(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(out.data()), nullptr) == 1);
    return out;
  }

 private:
  EVP_MD_CTX* context_;
};
}  // namespace

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

void JobText::append(Channel channel, std::string_view text) {
  if (text.empty()) return;
  if (runs_.empty() || runs_.back().channel != channel) runs_.push_back({size(), channel});
  bytes_ += text;
  (channel == Channel::reasoning ? reasoning_chars_ : answer_chars_) += count_code_points(text);
}

void JobText::truncate(std::int64_t size) {
  if (size >= this->size()) return;
  size = character_start(bytes_, size);
  pieces(size, this->size(), [this](Channel channel, std::string_view text, std::int64_t) {
    (channel == Channel::reasoning ? reasoning_chars_ : answer_chars_) -= count_code_points(text);
  });
  bytes_.resize(static_cast<std::size_t>(size));
  while (!runs_.empty() && runs_.back().begin >= size)
    runs_.pop_back();
}

std::size_t JobText::run_at(std::int64_t offset) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), offset,
                       [](std::int64_t value, const Run& run) { return value < run.begin; });
  return static_cast<std::size_t>(after - runs_.begin()) - 1;
}

std::int64_t JobText::run_end(std::size_t run) const {
  return run + 1 < runs_.size() ? runs_[run + 1].begin : size();
}

std::string JobText::of(Channel channel) const {
  std::string out;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].channel != channel) continue;
    const auto begin = static_cast<std::size_t>(runs_[i].begin);
    out.append(bytes_, begin, static_cast<std::size_t>(run_end(i)) - begin);
  }
  return out;
}

void JobText::pieces(
    std::int64_t from, std::int64_t to,
    const std::function<void(Channel, std::string_view, std::int64_t)>& piece) const {
  to = std::min(to, size());
  from = character_start(bytes_, std::max<std::int64_t>(from, 0));
  while (from < to) {
    const std::size_t run = run_at(from);
    std::int64_t end = std::min({run_end(run), to, from + kMaxPieceBytes});
    if (end < to) end = character_start(bytes_, end);
    CHECK(end > from);
    piece(runs_[run].channel,
          std::string_view(bytes_).substr(static_cast<std::size_t>(from),
                                          static_cast<std::size_t>(end - from)),
          end);
    from = end;
  }
}

std::int64_t JobText::matches_at(std::int64_t offset, Channel channel,
                                 std::string_view text) const {
  if (offset >= size() || text.empty()) return 0;
  const std::size_t run = run_at(offset);
  if (runs_[run].channel != channel) return 0;
  const std::string_view here = std::string_view(bytes_).substr(
      static_cast<std::size_t>(offset), static_cast<std::size_t>(run_end(run) - offset));
  const auto differ = std::mismatch(here.begin(), here.end(), text.begin(), text.end());
  std::int64_t same = differ.first - here.begin();
  if (same < static_cast<std::int64_t>(text.size())) same = character_start(text, same);
  return same;
}

std::string JobText::sha256() const {
  Sha256 hash;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const auto begin = static_cast<std::size_t>(runs_[i].begin);
    hash.add(runs_[i].channel == Channel::reasoning ? "R" : "A");
    hash.add(std::string_view(bytes_).substr(begin, static_cast<std::size_t>(run_end(i)) - begin));
  }
  return hash.finish();
}

}  // namespace ponder::jobs
