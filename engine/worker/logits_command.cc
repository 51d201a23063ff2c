// `ponder-engine logits MODEL < ids.json`: what the model expects after each position.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/json.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"

namespace ponder::worker {
namespace {

/// log(sum(exp(row))), in double and from the largest down, so that a row of 250,000 loses
/// nothing.
double log_sum_exp(std::span<const float> row) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row)
    sum += std::exp(static_cast<double>(logit) - most);
  return most + std::log(sum);
}

std::string line_of(std::int64_t pos, text::TokenId id, std::span<const float> row, int top,
                    bool full) {
  std::vector<std::int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto k = std::min<std::size_t>(static_cast<std::size_t>(top), row.size());
  // The larger logit first, the lower id on a tie; what is no number last.
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = row[static_cast<std::size_t>(a)],
                                  y = row[static_cast<std::size_t>(b)];
                      if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
                      return x == y || std::isnan(x) ? a < b : x > y;
                    });
  const double total = log_sum_exp(row);
  json::array best;
  for (std::size_t i = 0; i < k; ++i)
    best.push_back(json::array{
        order[i], static_cast<double>(row[static_cast<std::size_t>(order[i])]) - total});
  json::object out{{"pos", pos}, {"id", id}, {"top", std::move(best)}};
  if (full) {
    json::array logits;
    logits.reserve(row.size());
    for (const float logit : row)
      logits.emplace_back(static_cast<double>(logit));
    out["logits"] = std::move(logits);
  }
  return to_json(out) + "\n";
}

}  // namespace

Result<int> run_logits(const ModelArguments& arguments, int top, bool full) {
  TRY(const std::unique_ptr<models::Model> loaded, load_weights(arguments));
  models::Model& model = *loaded;
  TRY(const std::vector<text::TokenId> ids, read_ids(model.vocab()));
  if (static_cast<std::int64_t>(ids.size()) > model.n_ctx())
    return fail(
        ErrorCode::context_length_exceeded,
        fmt::format("{} ids are more than the window of {} holds", ids.size(), model.n_ctx()),
        "give fewer ids or a larger --ctx");
  // Rows are the same in any chunk, so a large vocabulary may make chunks smaller than asked for.
  const auto vocab = static_cast<std::size_t>(model.vocab());
  const std::size_t most_rows = std::max<std::size_t>(1, (256u << 20) / (vocab * sizeof(float)));
  const std::size_t chunk = std::min(static_cast<std::size_t>(model.chunk()), most_rows);
  std::vector<float> logits;
  const std::unique_ptr<models::SequenceState> sequence = model.new_sequence();
  for (std::size_t at = 0; at < ids.size(); at += chunk) {
    const std::size_t n = std::min(chunk, ids.size() - at);
    logits.resize(n * vocab);
    TRY_VOID(model.forward(*sequence, std::span(ids).subspan(at, n), static_cast<std::int64_t>(n),
                           logits));
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = std::span<const float>(logits).subspan(i * vocab, vocab);
      TRY_VOID(
          write_stdout(line_of(static_cast<std::int64_t>(at + i), ids[at + i], row, top, full)));
    }
  }
  return kExitDone;
}

}  // namespace ponder::worker
