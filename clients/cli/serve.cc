// ponder serve: the daemon in the foreground, with ponderd's own options.
#include <filesystem>

#include "clients/cli/commands.h"
#include "clients/cli/run_program.h"

namespace ponder::cli {
namespace {
int serve(Context& context, const std::vector<std::string>& options) {
  const auto places = context.places();
  if (!places) return context.failed(places.error());
  // Whoever serves wants it to run: an earlier `ponder stop` is taken back.
  std::error_code ignored;
  std::filesystem::remove(places->stopped_marker, ignored);
  return become_program(context, "ponderd", options);
}
}  // namespace

Action declare_serve(Arguments& arguments) {
  auto rest = std::make_shared<std::vector<std::string>>();
  arguments.rest(*rest);
  return [rest](Context& context) { return serve(context, *rest); };
}

}  // namespace ponder::cli
