// POST /v1/tokenize {"text", "special"?}: the model's ids of a text. "content" and "prompt" are
// read as other servers' names for "text".
#include "daemon/api/api.h"
#include "daemon/api/error_map.h"

namespace ponder::daemon {
namespace {

struct TokenizeRequest {
  std::string text;
  bool special = false;
};

Result<TokenizeRequest> parse(std::string_view body, const JsonLimits& limits) {
  TRY(const json::object object, parse_json_object(body, limits));
  TokenizeRequest request;
  TRY(request.special, bool_field(object, "special", false));
  for (const char* key : {"text", "content", "prompt"}) {
    if (!has_field(object, key)) continue;
    TRY(request.text, string_field(object, key));
    return request;
  }
  Error missing{ErrorCode::bad_request, "\"text\" is missing"};
  missing.param = "text";
  return fail(std::move(missing));
}
}  // namespace

void post_tokenize(const ApiServices& services, ExchangePtr exchange, std::string body,
                   std::string) {
  auto request = parse(body, services.json_limits);
  if (!request) return exchange->respond(error_response(request.error()));
  services.generator.tokenize(
      std::move(request->text), request->special,
      [exchange](Result<std::vector<std::int32_t>> ids) {
        if (!ids) return exchange->respond(error_response(ids.error()));
        json::array tokens(ids->begin(), ids->end());
        const std::size_t count = tokens.size();
        Response response;
        response.body = json::object{{"tokens", std::move(tokens)}, {"count", count}};
        exchange->respond(std::move(response));
      });
}

}  // namespace ponder::daemon
