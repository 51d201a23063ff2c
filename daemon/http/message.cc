#include "daemon/http/message.h"

#include <fmt/core.h>

#include "engine/base/api_version.h"
#include "engine/base/ids.h"

namespace ponder::daemon {

const std::string* RequestHead::header(std::string_view name) const {
  for (const Header& h : headers)
    if (h.name == name) return &h.value;
  return nullptr;
}

const std::string* RequestHead::parameter(std::string_view name) const {
  const std::string* last = nullptr;
  for (const auto& [key, value] : query)
    if (key == name) last = &value;
  return last;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 500:
      return "Internal Server Error";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string render_response(const Response& response, bool keep_alive, bool with_body) {
  std::string body;
  if (!response.body.is_null()) body = to_json(response.body);
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!response.body.is_null()) out += "Content-Type: application/json\r\n";
  if (response.status != 204) out += fmt::format("Content-Length: {}\r\n", body.size());
  out += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
  out += fmt::format("{}: {}\r\n", kApiHeader, kApiVersion);
  for (const Header& h : response.headers)
    out += fmt::format("{}: {}\r\n", h.name, h.value);
  out += fmt::format("X-Request-Id: {}\r\n", random_hex(8));
  out += keep_alive ? "\r\n" : "Connection: close\r\n\r\n";
  if (with_body) out += body;
  return out;
}

}  // namespace ponder::daemon
