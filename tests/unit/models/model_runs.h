#pragma once
// Loading and running models in tests: whole token lists through chunks of a given size, and the
// golden files of tests/golden/logits.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/models/model.h"

namespace ponder::models::testing {

using Ids = std::vector<std::int32_t>;

std::filesystem::path pebble(const char* stem);  ///< models/pebble/<stem>.gguf

/// CHECKs that the file loads.
std::unique_ptr<Model> load(const std::filesystem::path& file, const LoadOptions& options);
std::unique_ptr<Model> load_bytes(std::string_view bytes, const LoadOptions& options);

/// Logits [ids, vocab] of a new sequence, read `chunk` tokens at a time.
std::vector<float> run(Model& model, std::span<const std::int32_t> ids, std::int64_t chunk);
/// Goes on with a sequence and writes to `out`, which has ids.size() rows.
void run(Model& model, SequenceState& sequence, std::span<const std::int32_t> ids,
         std::int64_t chunk, std::span<float> out);

/// The first row whose bits differ, or -1.
std::int64_t first_difference(std::span<const float> a, std::span<const float> b,
                              std::int64_t vocab);

struct Conversation {
  std::string name;
  std::size_t prompt = 0;  ///< tokens of it; assistant text follows
  Ids ids;
};
std::vector<Conversation> conversations();
Ids english();

struct Golden {
  struct Position {
    std::size_t conversation, position;
    std::int32_t argmax;
  };
  struct Row {
    std::size_t conversation, position;
    std::span<const float> logits;  ///< of `values`
  };
  std::vector<Position> positions;
  std::vector<Row> rows;
  std::vector<float> values;
};
std::unique_ptr<Golden> golden(const std::string& stem);

}  // namespace ponder::models::testing
