// POST /v1/unload: the model's memory is given back; the queue goes on accepting, and the next
// request loads the model again. 409 while something is being made.
#include "daemon/api/api.h"
#include "daemon/api/error_map.h"

namespace ponder::daemon {

void post_unload(const ApiServices& services, ExchangePtr exchange, std::string, std::string) {
  const bool was_loaded = services.generator.status().pid != 0;
  services.generator.unload([exchange, was_loaded](Result<void> unloaded) {
    if (!unloaded) return exchange->respond(error_response(unloaded.error()));
    Response response;
    response.body = json::object{{"unloaded", true}, {"was_loaded", was_loaded}};
    exchange->respond(std::move(response));
  });
}

}  // namespace ponder::daemon
