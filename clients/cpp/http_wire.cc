// The one file of this room that includes Beast: it costs 15-20 s to compile.
#include "clients/cpp/http_wire.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sstream>

namespace ponder::client {
namespace http = boost::beast::http;
namespace {
constexpr std::uint32_t kHeaderBytesMax = 64u << 10;
constexpr std::string_view kStart = "HTTP/";

bool fits_request_line(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

boost::beast::string_view beast_view(std::string_view text) {
  return {text.data(), text.size()};
}

tl::unexpected<Error> no_daemon() {
  return fail(ErrorCode::unreachable, "what listens there does not answer as a Ponder daemon",
              "check PONDER_URL or --home");
}
}  // namespace

Result<std::string> serialize_request(const WireRequest& request) {
  if (!fits_request_line(request.method) || !fits_request_line(request.target))
    return fail(ErrorCode::bad_request, "a request's method and target must be plain ASCII");
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(beast_view(request.method));
  message.target(beast_view(request.target));
  message.set(http::field::host, beast_view(request.host));
  message.set(http::field::user_agent, "ponder/" PONDER_VERSION);
  message.set(http::field::accept, beast_view(request.accept));
  message.set(http::field::connection, "close");
  if (!request.bearer.empty())
    message.set(http::field::authorization, "Bearer " + std::string(request.bearer));
  if (request.body) {
    message.set(http::field::content_type, "application/json");
    message.body() = *request.body;
  }
  message.prepare_payload();
  std::ostringstream out;
  out << message;
  return std::move(out).str();
}

struct ResponseReader::State {
  http::response_parser<http::string_body> parser;
  std::string start;    // the first bytes
  std::string pending;  // bytes that the parser wants to see again with more behind them
};

ResponseReader::ResponseReader(std::uint64_t body_bytes_max) : state_(std::make_unique<State>()) {
  state_->parser.header_limit(kHeaderBytesMax);
  state_->parser.eager(true);
  if (body_bytes_max > 0)
    state_->parser.body_limit(body_bytes_max);
  else
    state_->parser.body_limit(boost::none);
}

ResponseReader::~ResponseReader() = default;

Result<void> ResponseReader::feed(std::string_view bytes) {
  auto& parser = state_->parser;
  auto& pending = state_->pending;
  pending.append(bytes);
  std::string& start = state_->start;
  start.append(bytes.substr(0, kStart.size() - std::min(kStart.size(), start.size())));
  std::size_t used = 0;
  while (used < pending.size() && !parser.is_done()) {
    boost::beast::error_code ec;
    const std::size_t n =
        parser.put(boost::asio::buffer(pending.data() + used, pending.size() - used), ec);
    used += n;
    if (ec == http::error::need_more) break;
    if (ec == http::error::body_limit)
      return fail(ErrorCode::too_large, "the daemon's answer is too large",
                  "read it in pages with --offset and --limit");
    if (ec) return no_daemon();
    if (n == 0) break;
  }
  pending.erase(0, used);
  return {};
}

Result<void> ResponseReader::feed_end() {
  if (state_->parser.is_done()) return {};
  if (!kStart.starts_with(state_->start)) return no_daemon();
  // Also a body that has neither length nor chunks: its end looks like the death of the daemon.
  return fail(ErrorCode::stream_lost, "the daemon closed the connection before its answer ended",
              "it may have been stopped or restarted: try again");
}

bool ResponseReader::has_head() const {
  return state_->parser.is_header_done();
}
bool ResponseReader::done() const {
  return state_->parser.is_done();
}
int ResponseReader::status() const {
  return static_cast<int>(state_->parser.get().result_int());
}

std::string ResponseReader::header(std::string_view name) const {
  const auto& fields = state_->parser.get();
  const auto found = fields.find(beast_view(name));
  if (found == fields.end()) return {};
  return std::string(found->value().data(), found->value().size());
}

std::string ResponseReader::take_body() {
  std::string out;
  out.swap(state_->parser.get().body());
  return out;
}

}  // namespace ponder::client
