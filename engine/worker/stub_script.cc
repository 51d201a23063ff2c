#include "engine/worker/stub_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace ponder::worker {
namespace {

constexpr std::string_view kOpen = "[[stub";
constexpr std::string_view kClose = "]]";
constexpr std::string_view kSpace = " \t\r\n";

constexpr std::array<std::pair<std::string_view, StubFault>, 9> kFaults{{
    {"slow", StubFault::slow},
    {"hang", StubFault::hang},
    {"crash", StubFault::crash},
    {"exit0", StubFault::exit0},
    {"invalid_utf8", StubFault::invalid_utf8},
    {"endless_thinking", StubFault::endless_thinking},
    {"loop", StubFault::loop},
    {"out_of_memory", StubFault::out_of_memory},
    {"device_lost", StubFault::device_lost},
}};

tl::unexpected<Error> bad_marker(std::string_view field) {
  return fail(ErrorCode::bad_request,
              fmt::format("a stub marker holds \"{}\"", field.substr(0, 80)),
              "use tokens, think, rate, prefill_s, text, fault, after");
}

template <class T>
Result<void> read_number(std::string_view field, std::string_view value, T least, T most, T& out) {
  T n{};
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (problem != std::errc() || end != value.data() + value.size() || !(n >= least && n <= most))
    return bad_marker(field);
  out = n;
  return {};
}

Result<void> read_field(std::string_view field, StubScript& script) {
  const std::size_t equals = field.find('=');
  if (equals == std::string_view::npos) return bad_marker(field);
  const std::string_view key = field.substr(0, equals);
  const std::string_view value = field.substr(equals + 1);
  constexpr std::int64_t kMostTokens = 1 << 24;
  if (key == "tokens")
    return read_number<std::int64_t>(field, value, 0, kMostTokens, script.tokens);
  if (key == "think") return read_number<std::int64_t>(field, value, 0, kMostTokens, script.think);
  if (key == "after") return read_number<std::int64_t>(field, value, 0, kMostTokens, script.after);
  if (key == "rate") return read_number(field, value, 0.001, 1e9, script.rate);
  if (key == "prefill_s") return read_number(field, value, 0.0, 1e6, script.prefill_s);
  if (key == "text" && !value.empty()) {
    script.word = value;
    return {};
  }
  if (key == "fault") {
    for (const auto& [word, fault] : kFaults) {
      if (word != value) continue;
      script.fault = fault;
      return {};
    }
  }
  return bad_marker(field);
}

}  // namespace

Result<StubScript> parse_stub_script(std::string_view text) {
  StubScript script;
  script.after = -1;
  for (std::size_t at = 0; (at = text.find(kOpen, at)) != std::string_view::npos;) {
    const std::size_t end = text.find(kClose, at);
    if (end == std::string_view::npos) return bad_marker(text.substr(at));
    std::string_view fields = text.substr(at + kOpen.size(), end - at - kOpen.size());
    while (true) {
      const std::size_t start = fields.find_first_not_of(kSpace);
      if (start == std::string_view::npos) break;
      fields.remove_prefix(start);
      const std::size_t size = std::min(fields.find_first_of(kSpace), fields.size());
      TRY_VOID(read_field(fields.substr(0, size), script));
      fields.remove_prefix(size);
    }
    at = end + kClose.size();
  }
  if (script.after < 0) script.after = 5;
  return script;
}

}  // namespace ponder::worker
