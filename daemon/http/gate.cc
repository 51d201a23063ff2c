#include "daemon/http/gate.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "engine/base/utf8.h"

namespace ponder::daemon {
namespace {

tl::unexpected<Error> refuse(std::string message) {
  return fail(ErrorCode::bad_request, std::move(message));
}

/// RFC 9110 5.6.2: what a method or a field name is made of.
bool is_token_char(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return refuse("the target holds a broken percent escape");
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

/// A decoded path may not say what its raw form did not: a separator, a NUL, a step upwards.
Result<std::string> read_path(std::string_view raw) {
  if (raw.find('\\') != raw.npos) return refuse("the path holds a backslash");
  TRY(std::string path, percent_decode(raw, false));
  if (std::count(path.begin(), path.end(), '/') != std::count(raw.begin(), raw.end(), '/') ||
      path.find('\\') != path.npos)
    return refuse("the path holds an escaped separator");
  if (!is_valid_utf8(path)) return refuse("the path is not UTF-8");
  for (const char c : path)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
      return refuse("the path holds a control character");
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    if (const auto part = path.substr(at + 1, end - at - 1); part == ".." || part == ".")
      return refuse("the path holds a dot segment");
    at = end;
  }
  return path;
}

Result<void> read_target(std::string_view target, RequestHead& head) {
  if (target.empty() || target.front() != '/')
    return refuse("the target must be a path that begins with /");
  for (const char c : target)
    if (c <= ' ' || c == 0x7f || c == '#' || (c & 0x80) != 0)
      return refuse("the target holds a byte that must be percent-encoded");
  const std::size_t mark = target.find('?');
  TRY(head.path, read_path(target.substr(0, mark)));
  if (mark == target.npos) return {};
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    TRY(std::string key, percent_decode(pair.substr(0, equals), true));
    TRY(std::string value,
        percent_decode(equals < pair.size() ? pair.substr(equals + 1) : std::string_view(), true));
    head.query.emplace_back(std::move(key), std::move(value));
  }
  return {};
}

Result<void> read_request_line(std::string_view line, RequestHead& head) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == line.npos || first == last ||
      line.substr(first + 1, last - first - 1).find(' ') != line.npos)
    return refuse("the request line is not METHOD TARGET VERSION");
  head.method = line.substr(0, first);
  if (!is_token(head.method) || head.method.size() > 32) return refuse("the method is not a token");
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return refuse("the version must be HTTP/1.1 or HTTP/1.0");
  head.version_minor = version.back() - '0';
  return read_target(line.substr(first + 1, last - first - 1), head);
}

Result<void> read_field(std::string_view line, RequestHead& head) {
  if (line.front() == ' ' || line.front() == '\t') return refuse("folded header lines are refused");
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return refuse("a header line has no colon");
  if (!is_token(line.substr(0, colon))) return refuse("a header name is not a token");
  head.headers.push_back(
      {lower_case(line.substr(0, colon)), std::string(trim(line.substr(colon + 1)))});
  return {};
}

std::size_t count(const RequestHead& head, std::string_view name) {
  return static_cast<std::size_t>(std::count_if(head.headers.begin(), head.headers.end(),
                                                [&](const Header& h) { return h.name == name; }));
}

Result<void> judge_framing(RequestHead& head) {
  const std::string* length = head.header("content-length");
  const std::string* encoding = head.header("transfer-encoding");
  if (count(head, "content-length") > 1) return refuse("Content-Length stands twice");
  if (count(head, "transfer-encoding") > 1) return refuse("Transfer-Encoding stands twice");
  if (length && encoding) return refuse("Content-Length beside Transfer-Encoding is refused");
  if (encoding) {
    if (*encoding != "chunked") return refuse("Transfer-Encoding must be chunked");
    if (head.version_minor == 0) return refuse("HTTP/1.0 knows no Transfer-Encoding");
    head.chunked = true;
  }
  if (length) {
    std::uint64_t n = 0;
    const char* end = length->data() + length->size();
    const auto [stopped, problem] = std::from_chars(length->data(), end, n);
    // from_chars takes no sign and no blanks for an unsigned number.
    if (length->empty() || problem != std::errc() || stopped != end)
      return refuse("Content-Length is not a number");
    head.content_length = n;
  }
  return {};
}

/// A host and perhaps a port. Whether it is ours is access.cc's question; what cannot be one is a
/// sign of two parsers that read it differently.
bool is_host(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._~:[]%").find(c) != std::string_view::npos;
  });
}

Result<void> judge_fields(RequestHead& head) {
  if (const std::size_t hosts = count(head, "host");
      hosts > 1 || (hosts == 0 && head.version_minor == 1))
    return refuse(hosts ? "Host stands twice" : "Host is missing");
  if (const std::string* host = head.header("host"); host && !is_host(*host))
    return refuse("Host is not a name or address");
  for (const char* once : {"content-type", "content-encoding", "authorization", "x-api-key",
                           "origin", "sec-fetch-site", "expect", "last-event-id"})
    if (count(head, once) > 1) return refuse(fmt::format("{} stands twice", once));
  if (const std::string* expect = head.header("expect")) {
    if (lower_case(*expect) != "100-continue") return refuse("Expect must be 100-continue");
    head.expects_continue = head.version_minor == 1;
  }
  if (const std::string* coding = head.header("content-encoding");
      coding && lower_case(*coding) != "identity")
    return fail(ErrorCode::unsupported_media, "compressed bodies are not accepted",
                "send the body without Content-Encoding");
  head.keep_alive = head.version_minor == 1;
  for (const Header& h : head.headers)
    if (h.name == "connection" && lower_case(h.value).find("close") != std::string::npos)
      head.keep_alive = false;
  return {};
}

/// *( ";" name [ "=" ( token / quoted text ) ] ), RFC 9112 7.1.1, without blanks.
bool is_chunk_extension(std::string_view text) {
  while (!text.empty()) {
    if (text.front() != ';') return false;
    text.remove_prefix(1);
    const std::size_t name_end = std::min(text.find_first_of("=;"), text.size());
    if (!is_token(text.substr(0, name_end))) return false;
    text.remove_prefix(name_end);
    if (text.empty() || text.front() == ';') continue;
    text.remove_prefix(1);
    const bool quoted = !text.empty() && text.front() == '"';
    const std::size_t close = quoted ? text.find('"', 1) : std::min(text.find(';'), text.size());
    if (close == text.npos) return false;
    const std::string_view value = quoted ? text.substr(1, close - 1) : text.substr(0, close);
    if (quoted ? value.find('\\') != value.npos : !is_token(value)) return false;
    text.remove_prefix(quoted ? close + 1 : close);
  }
  return true;
}

/// What a trailer may not say once the request has been judged by its header.
bool is_decided_by_header(std::string_view name) {
  for (const char* decided :
       {"content-length", "transfer-encoding", "trailer", "host", "authorization", "x-api-key",
        "content-type", "content-encoding", "content-range", "connection", "expect", "origin", "te",
        "upgrade", "cookie"})
    if (name == decided) return true;
  return name.starts_with("sec-") || name.starts_with("proxy-");
}
}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

Error body_too_large(std::size_t max_bytes) {
  return {ErrorCode::too_large, fmt::format("the body is larger than {} bytes", max_bytes),
          "send less, or raise max_body_bytes in ponder.toml"};
}

HeadScan scan_head(std::string_view bytes, std::size_t from, const HeadLimits& limits) {
  const auto refused = [](std::string message) {
    return HeadScan{HeadScan::State::refused, 0, Error{ErrorCode::bad_request, std::move(message)}};
  };
  for (std::size_t i = from; i < std::min(bytes.size(), limits.max_bytes); ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    const bool after_cr = i > 0 && bytes[i - 1] == '\r';
    if (c == '\n') {
      if (!after_cr) return refused("a header line ends in a bare LF");
      if (i >= 3 && bytes[i - 2] == '\n') return {HeadScan::State::complete, i + 1, {}};
      if (i == 1) return refused("the request begins with an empty line");
    } else if (after_cr) {
      return refused("a header line holds a bare CR");
    } else if (c != '\r' && c != '\t' && (c < ' ' || c == 0x7f)) {
      return refused("the header holds a control byte");
    }
  }
  if (bytes.size() >= limits.max_bytes)
    return refused(fmt::format("the header is larger than {} bytes", limits.max_bytes));
  return {};
}

Result<RequestHead> read_head(std::string_view raw, const HeadLimits& limits) {
  RequestHead head;
  bool first = true;
  while (true) {
    const std::size_t end = raw.find("\r\n");
    if (end == raw.npos) return refuse("the header does not end in an empty line");
    const std::string_view line = raw.substr(0, end);
    raw.remove_prefix(end + 2);
    if (first) {
      TRY_VOID(read_request_line(line, head));
      first = false;
      continue;
    }
    if (line.empty()) break;
    if (head.headers.size() == limits.max_fields)
      return refuse(fmt::format("more than {} header lines", limits.max_fields));
    TRY_VOID(read_field(line, head));
  }
  TRY_VOID(judge_framing(head));
  TRY_VOID(judge_fields(head));
  return head;
}

Result<void> ChunkGate::judge(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size() && state_ != State::done) {
    if (state_ == State::data) {
      const std::size_t n =
          static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size() - at));
      at += n;
      left_ -= n;
      if (left_ == 0) state_ = State::data_cr;
      continue;
    }
    const char c = bytes[at++];
    if (state_ == State::data_cr || state_ == State::data_lf) {
      if (c != (state_ == State::data_cr ? '\r' : '\n'))
        return refuse("a chunk does not end where its size says");
      state_ = state_ == State::data_cr ? State::data_lf : State::size_line;
      continue;
    }
    const bool after_cr = !line_.empty() && line_.back() == '\r';
    if (after_cr != (c == '\n')) return refuse("a chunk's line does not end in CR LF");
    if (after_cr) {
      TRY_VOID(end_line());
      line_.clear();
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (c != '\r' && c != '\t' && (byte < ' ' || byte == 0x7f))
      return refuse("a chunk's line holds a control byte");
    line_ += c;
    if (line_.size() > limits_.max_bytes) return refuse("a chunk's line is too long");
  }
  return {};
}

Result<void> ChunkGate::end_line() {
  line_.pop_back();  // its CR
  if (state_ == State::size_line) return judge_size_line();
  return judge_trailer();
}

Result<void> ChunkGate::judge_size_line() {
  constexpr std::size_t kMaxDigits = 15;  // far over any body that is accepted, and no overflow
  const std::string_view line = line_;
  std::size_t digits = 0;
  for (left_ = 0; digits < line.size() && hex_digit(line[digits]) >= 0; ++digits) {
    if (digits == kMaxDigits) return refuse("a chunk's size has too many digits");
    left_ = left_ * 16 + static_cast<std::uint64_t>(hex_digit(line[digits]));
  }
  if (digits == 0) return refuse("a chunk begins without its size");
  const std::string_view extension = line.substr(digits);
  if (extension.size() > kMaxExtensionBytes || !is_chunk_extension(extension))
    return refuse("a chunk's extension is malformed or too long");
  state_ = left_ > 0 ? State::data : State::trailer_line;
  return {};
}

Result<void> ChunkGate::judge_trailer() {
  if (line_.empty()) {
    state_ = State::done;
    return {};
  }
  trailer_bytes_ += line_.size() + 2;
  if (++trailers_ > limits_.max_fields || trailer_bytes_ > limits_.max_bytes)
    return refuse("too many trailers");
  RequestHead trailer;
  TRY_VOID(read_field(line_, trailer));
  if (is_decided_by_header(trailer.headers.front().name))
    return refuse(fmt::format("{} may not be a trailer", trailer.headers.front().name));
  return {};
}

}  // namespace ponder::daemon
