// ponder config: every setting with where its value came from, as the daemon would read them now.
#include "clients/cli/commands.h"
#include "clients/cli/run_program.h"

namespace ponder::cli {
namespace {
int config(Context& context, bool path_only) {
  const auto places = context.places();
  if (!places) return context.failed(places.error());
  if (context.json()) {
    context.document({{"file", places->config_file.string()}});
    return kDone;
  }
  if (path_only) {
    context.out(places->config_file.string() + "\n");
    return kDone;
  }
  return become_program(context, "ponderd", {"--print-config"});
}
}  // namespace

Action declare_config(Arguments& arguments) {
  auto path_only = std::make_shared<bool>(false);
  arguments.flag("--path", *path_only, "only print where the file is");
  return [path_only](Context& context) { return config(context, *path_only); };
}

}  // namespace ponder::cli
