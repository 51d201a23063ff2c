#pragma once
// stdout is data, stderr is talk. Text from the daemon that reaches a terminal has its control
// characters escaped, since a model may write any; into a file or pipe it goes as it is. Output has
// no colour anywhere, so NO_COLOR needs no code.
#include <string>
#include <string_view>

namespace ponder::cli {

/// C0 but newline and tab, DEL, C1 and the characters that change the direction of text (bidi
/// controls) as \uXXXX; bytes that are no UTF-8 as U+FFFD. Inside a JSON string the result still
/// means the same.
std::string escape_controls(std::string_view text);

class Terminal {
 public:
  Terminal();

  /// Writes `text` to stdout at once.
  void out(std::string_view text);
  /// Writes `text` and a newline to stderr.
  void say(std::string_view text);
  /// A line on stderr that the next one replaces; nothing unless stderr is a terminal. Empty:
  /// clears.
  void counter(std::string_view text);

  bool out_is_terminal() const { return out_is_terminal_; }
  bool err_is_terminal() const { return err_is_terminal_; }
  /// Whether all of stdout could be written (a full disk loses data that a script counts on).
  bool out_ok() const { return out_ok_; }

 private:
  bool out_is_terminal_;
  bool err_is_terminal_;
  bool out_ok_ = true;
  bool counter_shown_ = false;
};

/// Writes all of `bytes`; false if that fails.
bool write_fully(int fd, std::string_view bytes);

}  // namespace ponder::cli
