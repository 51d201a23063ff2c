#include "clients/cli/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "engine/base/utf8.h"

namespace ponder::cli {
namespace {
bool is_control(char32_t c) {
  if (c < 0x20) return c != '\n' && c != '\t';
  if (c >= 0x7F && c <= 0x9F) return true;
  return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

bool is_dumb() {
  const char* kind = std::getenv("TERM");
  return kind && std::string_view(kind) == "dumb";
}
}  // namespace

std::string escape_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    char32_t c = 0;
    const int n = decode_utf8(text, i, c);
    if (n == 0) {
      append_utf8(out, 0xFFFD);
      ++i;
      continue;
    }
    if (is_control(c))
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out.append(text.substr(i, static_cast<std::size_t>(n)));
    i += static_cast<std::size_t>(n);
  }
  return out;
}

bool write_fully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

Terminal::Terminal()
    : out_is_terminal_(::isatty(STDOUT_FILENO) == 1),
      err_is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void Terminal::out(std::string_view text) {
  counter({});
  if (!out_ok_) return;
  out_ok_ = out_is_terminal_ ? write_fully(STDOUT_FILENO, escape_controls(text))
                             : write_fully(STDOUT_FILENO, text);
}

void Terminal::say(std::string_view text) {
  counter({});
  std::string line = err_is_terminal_ ? escape_controls(text) : std::string(text);
  line += '\n';
  (void)write_fully(STDERR_FILENO, line);  // talk: nobody counts on it
}

void Terminal::counter(std::string_view text) {
  if (!err_is_terminal_ || is_dumb() || (text.empty() && !counter_shown_)) return;
  counter_shown_ = !text.empty();
  (void)write_fully(STDERR_FILENO, fmt::format("\r\033[K{}", text));
}

}  // namespace ponder::cli
