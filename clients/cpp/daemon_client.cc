#include "clients/cpp/daemon_client.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "clients/cpp/connection.h"
#include "clients/cpp/http_wire.h"
#include "clients/cpp/server_error.h"
#include "clients/cpp/sse_reader.h"
#include "engine/base/api_version.h"
#include "engine/base/unique_fd.h"

namespace ponder::client {
namespace {
constexpr std::uint64_t kBodyBytesMax = 64u << 20;
constexpr int kStartMs = 30'000;
constexpr int kHangupPauseMs = 20;
constexpr int kDyingMs =
    5'000;  // a killed process is gone in milliseconds, on a busy machine later
constexpr std::string_view kDefaultPort = "7663";

struct Address {
  std::string host;  ///< without the brackets of an IPv6 address
  std::string port;
  std::string authority;  ///< as the Host header wants it
};

Result<Address> parse_url(std::string_view url) {
  const auto refuse = [] {
    return fail(ErrorCode::bad_request, "PONDER_URL must be http://HOST[:PORT]",
                "for example http://127.0.0.1:7663; for TLS put a proxy or an ssh tunnel between");
  };
  if (!url.starts_with("http://")) return refuse();
  std::string_view rest = url.substr(7);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  Address address;
  address.authority = rest;
  std::string_view port = kDefaultPort;
  std::string_view host = rest;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return refuse();
    host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    if (!rest.empty() && rest.front() != ':') return refuse();
    if (!rest.empty()) port = rest.substr(1);
  } else if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
  }
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-._:%", c) != nullptr;
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (host.empty() || !std::all_of(host.begin(), host.end(), plain)) return refuse();
  if (port.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), digit))
    return refuse();
  address.host = host;
  address.port = port;
  return address;
}

/// The API key for TCP: from PONDER_KEY_FILE, else the local daemon's own if it is there.
Result<std::string> read_key(const ClientOptions& options) {
  const bool given = !options.key_file.empty();
  const std::string file = given ? options.key_file : options.places.key_file.string();
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && !given) return std::string();
  std::string key(4096, '\0');
  const ssize_t n = fd ? ::read(fd.get(), key.data(), key.size()) : -1;
  if (n < 0)
    return fail(ErrorCode::bad_request,
                fmt::format("the key file {} cannot be read: {}", file, std::strerror(errno)),
                "set PONDER_KEY_FILE to a file with the daemon's API key");
  key.resize(static_cast<std::size_t>(n));
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back())))
    key.pop_back();
  const auto bad = [](char c) { return c <= ' ' || c >= '\x7f'; };
  if (key.empty() || std::any_of(key.begin(), key.end(), bad))
    return fail(ErrorCode::bad_request, fmt::format("{} does not hold an API key", file),
                "it must be one line of plain characters");
  return key;
}

Result<Connection> connect_once(const ClientOptions& options, const Bounds& bounds) {
  const Bounds connecting = bounds.no_longer_than(options.connect_timeout_ms);
  if (options.url.empty()) return Connection::to_socket(options.places.socket, connecting);
  TRY(const Address address, parse_url(options.url));
  return Connection::to_host(address.host, address.port, connecting);
}

/// Connects, starting the local daemon if that is allowed. One more try after that, since the
/// daemon that was there a moment ago may be just stopping.
Result<Connection> connect(const ClientOptions& options, const Bounds& bounds) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    TRY(Connection made, connect_once(options, bounds));
    if (made.connected()) return made;
    if (std::string sentence = stopped_sentence(options.places); !sentence.empty())
      return fail(ErrorCode::unreachable, sentence, "ponder start");
    if (!options.may_start)
      return fail(ErrorCode::unreachable,
                  fmt::format("no daemon is running (nothing listens on {})",
                              options.places.socket.string()),
                  "ponder start");
    const int left = bounds.left_ms();
    TRY_VOID(start_daemon(options.places, false, bounds.interrupt,
                          left < 0 ? kStartMs : std::max(1, std::min(left, kStartMs))));
  }
  return fail(ErrorCode::unreachable, "the daemon was started and is gone again",
              fmt::format("its log is {}", (options.places.logs_dir / "ponderd.log").string()));
}

Result<std::string> request_bytes(const ClientOptions& options, std::string_view method,
                                  std::string_view target, const std::string* body,
                                  std::string_view accept) {
  std::string host = "localhost";
  std::string key;
  if (!options.url.empty()) {
    TRY(Address address, parse_url(options.url));
    TRY(key, read_key(options));
    host = std::move(address.authority);
  }
  return serialize_request({.method = method,
                            .target = target,
                            .host = host,
                            .bearer = key,
                            .accept = accept,
                            .body = body});
}

/// Reads until the response's head is there (or, with `whole`, all of it).
Result<void> read_response(Connection& connection, ResponseReader& reader, bool whole,
                           const Bounds& bounds) {
  std::array<char, 1 << 16> buffer;
  while (whole ? !reader.done() : !reader.has_head()) {
    TRY(const std::size_t n, connection.read_some(buffer.data(), buffer.size(), bounds));
    if (n == 0) return reader.feed_end();
    TRY_VOID(reader.feed({buffer.data(), n}));
  }
  return {};
}

/// Whether sending the request once more cannot do a thing twice, nor wait twice. A job without a
/// key may have been made and have ended meanwhile, and would then be made again.
bool may_repeat(std::string_view target, const json::value* body) {
  if (target.find("wait_s=") != target.npos) return false;
  if (target != "/v1/jobs" || !body || !body->is_object()) return true;
  const json::value* key = body->as_object().if_contains("idempotency_key");
  return key && key->is_string() && !key->as_string().empty();
}

/// The daemons that hung up on a call before their answer ended. One that is being killed still
/// takes connections until its last descriptor is closed, so it is asked until it is gone and
/// another has been started; that one hanging up too is no accident.
class Hangups {
 public:
  explicit Hangups(const Bounds& bounds) : bounds_(bounds.no_longer_than(kDyingMs)) {}

  /// After `peer` hung up: pauses and returns true if the call is to be made again.
  bool passing(int peer) {
    if (count_ > 0 && peer != first_) return false;
    if (count_++ == 0) first_ = peer;
    if (bounds_.left_ms() == 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kHangupPauseMs));
    return !(bounds_.interrupt && bounds_.interrupt->triggered());
  }

 private:
  const Bounds bounds_;
  int first_ = 0;
  int count_ = 0;
};

std::string printable(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 20));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

bool is_health_document(const json::value& body) {
  return body.is_object() && body.as_object().contains("state") &&
         !body.as_object().contains("error");
}

/// A daemon that says nothing of it is older than the question and speaks the first version.
Result<void> check_api(const ResponseReader& reader) {
  const std::string said = reader.header(kApiHeader);
  if (said.empty() || said == std::to_string(kApiVersion)) return {};
  return fail(
      ErrorCode::unreachable,
      fmt::format("the daemon speaks version {} of Ponder's interface and this program, "
                  "ponder {}, version {}",
                  printable(said), PONDER_VERSION, kApiVersion),
      "`ponder restart` starts the daemon that is installed beside this program; where that "
      "is the same, update this program");
}

Result<Response> finish(ResponseReader& reader) {
  TRY_VOID(check_api(reader));
  Response response;
  response.status = reader.status();
  const std::string retry = reader.header("Retry-After");
  if (!retry.empty() && retry.size() < 9 && std::isdigit(static_cast<unsigned char>(retry[0])))
    response.retry_after_s = std::atoi(retry.c_str());
  const std::string text = reader.take_body();
  if (!text.empty()) {
    auto parsed = parse_json(text, {.max_bytes = kBodyBytesMax, .max_depth = 64});
    if (parsed) {
      response.body = std::move(*parsed);
    } else if (response.status < 400) {
      return fail(ErrorCode::unreachable, "what listens there does not answer as a Ponder daemon",
                  "check PONDER_URL or --home");
    }
  }
  if (response.status >= 400 && !is_health_document(response.body))
    return fail(decode_error(response.status, response.body, response.retry_after_s));
  return response;
}
}  // namespace

DaemonClient::DaemonClient(ClientOptions options) : options_(std::move(options)) {}

Result<Response> DaemonClient::call(std::string_view method, std::string_view target,
                                    const json::value* body, int timeout_ms, Interrupt* interrupt) {
  const Bounds bounds = Bounds::within(timeout_ms, interrupt);
  std::string text;
  if (body) text = to_json(*body);
  TRY(const std::string request,
      request_bytes(options_, method, target, body ? &text : nullptr, "application/json"));
  for (Hangups hangups(bounds);;) {
    TRY(Connection connection, connect(options_, bounds));
    // A daemon that refuses a large body answers before it has read it all; what it says then
    // counts for more than that it hung up.
    const auto written = connection.write_all(request, bounds);
    if (!written && written.error().code != ErrorCode::unreachable) return fail(written.error());
    ResponseReader reader(kBodyBytesMax);
    const auto read = read_response(connection, reader, true, bounds);
    if (read) return finish(reader);
    const Error error = written ? read.error() : written.error();
    const bool hung_up = !written || error.code == ErrorCode::stream_lost;
    if (!options_.may_start || !hung_up || !may_repeat(target, body) ||
        !hangups.passing(connection.peer_pid()))
      return fail(error);
  }
}

Result<void> DaemonClient::stream(std::string_view target,
                                  const std::function<bool(const ServerEvent&)>& on_event,
                                  Interrupt* interrupt) {
  const Bounds bounds = Bounds::within(0, interrupt);
  TRY(const std::string request,
      request_bytes(options_, "GET", target, nullptr, "text/event-stream"));
  TRY(Connection connection, connect(options_, bounds));
  TRY_VOID(connection.write_all(request, bounds));
  ResponseReader reader(0);
  TRY_VOID(read_response(connection, reader, false, bounds));
  if (reader.has_head()) TRY_VOID(check_api(reader));
  if (!reader.has_head() || reader.status() >= 400) {
    TRY_VOID(read_response(connection, reader, true, bounds.no_longer_than(10'000)));
    TRY_VOID(finish(reader));
    return fail(ErrorCode::internal, fmt::format("the daemon answered HTTP {}", reader.status()));
  }
  SseReader events;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    TRY_VOID(events.feed(reader.take_body(), on_event));
    if (events.stopped() || reader.done()) return {};
    TRY(const std::size_t n, connection.read_some(buffer.data(), buffer.size(), bounds));
    if (n == 0) {
      TRY_VOID(reader.feed_end());
      TRY_VOID(events.feed(reader.take_body(), on_event));
      return {};
    }
    TRY_VOID(reader.feed({buffer.data(), n}));
  }
}

Result<void> DaemonClient::ensure_running() {
  TRY_VOID(connect(options_, Bounds::within(kStartMs + options_.connect_timeout_ms, nullptr)));
  return {};
}

bool DaemonClient::is_running() const {
  const auto made = connect_once(options_, Bounds::within(options_.connect_timeout_ms, nullptr));
  return made && made->connected();
}

Result<ClientOptions> client_options(const std::string& home, bool may_start) {
  ClientOptions options;
  TRY(options.places, find_places(home));
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  options.url = environment("PONDER_URL");
  options.key_file = environment("PONDER_KEY_FILE");
  options.may_start = may_start && options.url.empty();
  if (!options.url.empty()) TRY_VOID(parse_url(options.url));
  return options;
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && byte > 0 && (std::isalnum(byte) || std::strchr("-._~", c)))
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

}  // namespace ponder::client
