#include "jobs/estimate.h"

#include <algorithm>
#include <vector>

namespace ponder::jobs {
namespace {
constexpr std::size_t kKept = 100;
}

void RunTimes::add(Lane lane, const std::string& effort, std::int64_t run_ms) {
  auto& times = kinds_[{lane, effort}];
  times.push_back(run_ms);
  if (times.size() > kKept) times.pop_front();
}

std::optional<Estimate> RunTimes::until_end(Lane lane, const std::string& effort,
                                            std::int64_t run_ms, std::int64_t ahead,
                                            int places) const {
  const auto found = kinds_.find({lane, effort});
  if (found == kinds_.end() || found->second.empty()) return std::nullopt;
  std::vector<std::int64_t> times(found->second.begin(), found->second.end());
  std::sort(times.begin(), times.end());
  const auto rounds = static_cast<double>(ahead) / std::max(1, places);
  const auto at = [&](std::size_t percent) {
    const std::size_t index = std::min(times.size() - 1, times.size() * percent / 100);
    const auto whole = static_cast<double>(times[index]);
    return (std::max(0.0, whole - static_cast<double>(run_ms)) + rounds * whole) / 1000;
  };
  return Estimate{at(50), at(90)};
}

}  // namespace ponder::jobs
