// A model file from a stranger: whatever its bytes are, it is read or refused, never believed.
#include <algorithm>
#include <random>

#include "engine/artifact/gguf.h"
#include "engine/models/model.h"
#include "engine/run/load.h"
#include "tests/support/memory_file.h"
#include "tests/support/model_files.h"

using namespace ponder;

namespace {
std::string sound_file() {
  testing::TinyQwen35 shape;
  shape.layers = 4;
  shape.hidden = 64;
  shape.ffn = 64;
  shape.vocab = 64;
  shape.heads = 2;
  return testing::tiny_qwen35(shape).bytes();
}
}  // namespace

/// libFuzzer's own mutations rarely get past the header: half of the inputs are a sound file whose
/// directory was changed at the places that the input names.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string sound = sound_file();
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 3 && data[0] % 2 == 0) {
    bytes = sound;
    for (std::size_t i = 1; i + 3 <= size; i += 3) {
      const std::size_t at =
          (data[i] | data[i + 1] << 8) % std::min<std::size_t>(bytes.size(), 8192);
      bytes[at] = static_cast<char>(data[i + 2]);
    }
  }
  const testing::MemoryFile file(bytes);
  const auto gguf = artifact::Gguf::open(file.path());
  if (!gguf) return 0;
  static_cast<void>(models::unsupported(**gguf));
  static_cast<void>(run::load_vocabulary(**gguf));
  const auto need = models::memory_need(**gguf, {.n_ctx = 64, .threads = 1});
  if (need && need->total < (256u << 20))
    static_cast<void>(models::Model::load(**gguf, {.n_ctx = 64, .threads = 1, .chunk = 16}));
  return 0;
}
