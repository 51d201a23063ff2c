// What a stranger sends first: a request's header and a chunked body through the gate, in pieces of
// any size. What the gate takes for a whole body is one to Beast as well, to the same byte.
#include <algorithm>

#include "clients/cpp/http_wire.h"
#include "daemon/http/gate.h"
#include "engine/base/check.h"
#include "engine/base/utf8.h"

using namespace ponder;
using daemon::HeadScan;

namespace {

const daemon::HeadLimits kLimits{.max_bytes = 2048, .max_fields = 16};

HeadScan scan(std::string_view bytes, std::size_t piece) {
  HeadScan found;
  for (std::size_t seen = 0; seen < bytes.size() && found.state == HeadScan::State::need_more;) {
    const std::size_t now = std::min(bytes.size(), seen + piece);
    found = daemon::scan_head(bytes.substr(0, now), seen, kLimits);
    seen = now;
  }
  return found;
}

void judge_head(const daemon::RequestHead& head) {
  CHECK(head.path.starts_with('/') && is_valid_utf8(head.path));
  CHECK(head.path.find("/../") == head.path.npos && !head.path.ends_with("/.."));
  CHECK(!head.chunked || !head.content_length);
  CHECK(head.headers.size() <= kLimits.max_fields);
  for (const daemon::Header& h : head.headers) {
    CHECK(h.name == daemon::lower_case(h.name) && h.name.find_first_of(" \t:") == h.name.npos);
    CHECK(h.value.find_first_of("\r\n") == h.value.npos);
  }
}

/// How many bytes of `bytes` are the body; npos: it is refused or has no end.
std::size_t body_size(std::string_view bytes, std::size_t piece, bool& refused) {
  daemon::ChunkGate gate(kLimits);
  std::size_t size = std::string_view::npos;
  for (std::size_t at = 0; at < bytes.size() && size == std::string_view::npos; at += piece) {
    if (!gate.judge(bytes.substr(at, piece))) {
      refused = true;
      return size;
    }
    if (gate.done()) size = std::min(bytes.size(), at + piece);
  }
  return size;
}

void judge_chunks(std::string_view bytes, std::size_t piece) {
  bool refused = false, refused_in_pieces = false;
  const std::size_t size = body_size(bytes, 1, refused);
  const std::size_t in_pieces = body_size(bytes, piece, refused_in_pieces);
  CHECK_MSG(refused == refused_in_pieces, "pieces change what is accepted");
  constexpr auto none = std::string_view::npos;
  CHECK((size == none) == (in_pieces == none) && (size == none || in_pieces < size + piece));
  if (size == none) return;
  client::ResponseReader beast(0);
  CHECK(beast.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").has_value());
  CHECK_MSG(beast.feed(bytes.substr(0, size - 1)).has_value() && !beast.done(),
            "Beast ends it earlier");
  CHECK_MSG(beast.feed(bytes.substr(size - 1, 1)).has_value() && beast.done(),
            "Beast does not end it here");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::size_t piece = 1 + data[0] % 64;
  const HeadScan whole = daemon::scan_head(input, 0, kLimits);
  const HeadScan parts = scan(input, piece);
  // A header that ends within the limit and is too long behind it is told apart by what has come.
  CHECK_MSG(whole.state == parts.state && whole.size == parts.size, "pieces change the header");
  std::string_view body = input;
  if (whole.state == HeadScan::State::complete) {
    const auto head = daemon::read_head(input.substr(0, whole.size), kLimits);
    if (head) judge_head(*head);
    body = input.substr(whole.size);
  }
  judge_chunks(body, piece);
  return 0;
}
