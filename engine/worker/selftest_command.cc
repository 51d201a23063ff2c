// `ponder-engine selftest MODEL`: the same tokens by every way through the engine (run/selftest.h),
// a line for each.
#include "engine/run/selftest.h"

#include "engine/base/json.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"

namespace ponder::worker {

Result<int> run_selftest(const ModelArguments& arguments) {
  ModelArguments with_drafts = arguments;
  with_drafts.drafts = true;
  TRY(const run::LoadedModel loaded, load(with_drafts));
  TRY(const bool equal,
      run::selftest(*loaded.model, *loaded.vocabulary.tokenizer, [](const run::SelftestLeg& leg) {
        json::object line{
            {"leg", leg.name}, {"equal", !leg.first_difference}, {"first_difference", nullptr}};
        if (leg.first_difference) line["first_difference"] = *leg.first_difference;
        return write_stdout(to_json(line) + "\n");
      }));
  return equal ? kExitDone : kExitRefused;
}

}  // namespace ponder::worker
