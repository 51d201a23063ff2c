// expand_gguf IN f32|f16|bf16 OUT: the file with its quantised tensors as floats, so that a clone
// carries two weight files and the tests have five.
#include <cstdio>
#include <string_view>

#include "tests/support/model_files.h"

int main(int argc, char** argv) {
  using ponder::kernels::DType;
  const std::string_view type = argc == 4 ? argv[2] : "";
  if (type != "f32" && type != "f16" && type != "bf16") {
    std::fputs("usage: expand_gguf IN f32|f16|bf16 OUT\n", stderr);
    return 2;
  }
  const DType target = type == "f32" ? DType::F32 : type == "f16" ? DType::F16 : DType::BF16;
  ponder::testing::write_file(argv[3], ponder::testing::expand_gguf(argv[1], target));
  return 0;
}
