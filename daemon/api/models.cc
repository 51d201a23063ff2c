// GET /v1/models: the one model, in the OpenAI and the Anthropic form at once.
#include "daemon/api/api.h"
#include "daemon/api/error_map.h"
#include "daemon/api/request.h"

namespace ponder::daemon {
namespace {

json::object model_entry(const ApiServices& services, const ModelInfo& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", services.started_wall_ms / 1000},
          {"owned_by", "ponder"},
          {"type", "model"},
          {"display_name", model.id},
          {"created_at", rfc3339(services.started_wall_ms)},
          {"max_input_tokens", model.n_ctx > 0 ? json::value(model.n_ctx) : json::value(nullptr)},
          {"input_modalities", json::array{"text"}}};
}
}  // namespace

void get_models(const ApiServices& services, ExchangePtr exchange, std::string, std::string) {
  const ModelInfo model = services.generator.status().model;
  json::array data;
  if (!model.id.empty()) data.push_back(model_entry(services, model));
  Response response;
  response.body = json::object{{"object", "list"},
                               {"data", std::move(data)},
                               {"has_more", false},
                               {"first_id", text_or_null(model.id)},
                               {"last_id", text_or_null(model.id)}};
  exchange->respond(std::move(response));
}

void get_model(const ApiServices& services, ExchangePtr exchange, std::string, std::string id) {
  const ModelInfo model = services.generator.status().model;
  if (model.id.empty() || id != model.id)
    return exchange->respond(error_response(Error{ErrorCode::not_found, "there is no such model",
                                                  "GET /v1/models lists what is served"}));
  Response response;
  response.body = model_entry(services, model);
  exchange->respond(std::move(response));
}

}  // namespace ponder::daemon
