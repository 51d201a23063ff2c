#include "tests/unit/models/model_runs.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/json.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_file.h"

namespace ponder::models::testing {
namespace {

std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(PONDER_SOURCE_DIR) / "tests/golden/logits" / name;
}

json::value golden_json(const std::string& name) {
  auto value = parse_json(ponder::testing::read_file(golden_file(name)));
  CHECK_MSG(value.has_value(), name);
  return std::move(*value);
}

Ids to_ids(const json::value& list) {
  Ids out;
  for (const json::value& id : list.as_array())
    out.push_back(static_cast<std::int32_t>(id.as_int64()));
  return out;
}

}  // namespace

std::filesystem::path pebble(const char* stem) {
  return std::filesystem::path(PONDER_SOURCE_DIR) / "models/pebble" / (std::string(stem) + ".gguf");
}

std::unique_ptr<Model> load(const std::filesystem::path& path, const LoadOptions& options) {
  auto file = artifact::Gguf::open(path);
  CHECK_MSG(file.has_value(), file ? "" : file.error().message);
  auto model = Model::load(**file, options);
  CHECK_MSG(model.has_value(), model ? "" : model.error().message);
  return std::move(*model);
}

std::unique_ptr<Model> load_bytes(std::string_view bytes, const LoadOptions& options) {
  return load(ponder::testing::MemoryFile(bytes).path(), options);
}

void run(Model& model, SequenceState& sequence, std::span<const std::int32_t> ids,
         std::int64_t chunk, std::span<float> out) {
  const auto vocab = static_cast<std::size_t>(model.vocab());
  for (std::size_t at = 0; at < ids.size(); at += static_cast<std::size_t>(chunk)) {
    const auto part = ids.subspan(at, std::min(static_cast<std::size_t>(chunk), ids.size() - at));
    const auto done = model.forward(sequence, part, static_cast<std::int64_t>(part.size()),
                                    out.subspan(at * vocab, part.size() * vocab));
    CHECK_MSG(done.has_value(), done ? "" : done.error().message);
  }
}

std::vector<float> run(Model& model, std::span<const std::int32_t> ids, std::int64_t chunk) {
  std::vector<float> out(ids.size() * static_cast<std::size_t>(model.vocab()));
  const auto sequence = model.new_sequence();
  run(model, *sequence, ids, chunk, out);
  return out;
}

std::int64_t first_difference(std::span<const float> a, std::span<const float> b,
                              std::int64_t vocab) {
  CHECK(a.size() == b.size());
  const auto row = static_cast<std::size_t>(vocab);
  for (std::size_t at = 0; at < a.size(); at += row)
    if (std::memcmp(a.data() + at, b.data() + at, row * sizeof(float)) != 0)
      return static_cast<std::int64_t>(at / row);
  return -1;
}

std::vector<Conversation> conversations() {
  std::vector<Conversation> out;
  const json::value list = golden_json("conversations.json");
  for (const json::value& entry : list.as_array())
    out.push_back({std::string(entry.at("name").as_string()),
                   static_cast<std::size_t>(entry.at("prompt").as_int64()),
                   to_ids(entry.at("ids"))});
  return out;
}

Ids english() {
  return to_ids(golden_json("english.json").at("ids"));
}

std::unique_ptr<Golden> golden(const std::string& stem) {
  auto out = std::make_unique<Golden>();
  const json::value choices = golden_json(stem + ".argmax.json");
  for (const json::value& entry : choices.at("positions").as_array()) {
    const Ids numbers = to_ids(entry);
    out->positions.push_back(
        {static_cast<std::size_t>(numbers[0]), static_cast<std::size_t>(numbers[1]), numbers[2]});
  }
  const json::value index = golden_json(stem + ".logits.json");
  const auto vocab = static_cast<std::size_t>(index.at("vocab").as_int64());
  const std::string bytes = ponder::testing::read_file(golden_file(stem + ".logits.bin"));
  const json::array& rows = index.at("rows").as_array();
  CHECK(bytes.size() == rows.size() * vocab * sizeof(float));
  out->values.resize(rows.size() * vocab);
  std::memcpy(out->values.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Ids numbers = to_ids(rows[i]);
    out->rows.push_back({static_cast<std::size_t>(numbers[0]), static_cast<std::size_t>(numbers[1]),
                         std::span(out->values).subspan(i * vocab, vocab)});
  }
  return out;
}

}  // namespace ponder::models::testing
