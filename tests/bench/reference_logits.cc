// The double-precision reference as a program: reference_logits MODEL < ids.json > logits.f64, raw
// doubles [ids, vocab]. Slow on purpose; a 0.8B model takes about a second a token.
#include <cstdio>
#include <iostream>
#include <iterator>

#include "engine/base/json.h"
#include "tests/support/reference_decoder.h"

int main(int argc, char** argv) {
  using namespace ponder;
  if (argc != 2) {
    std::fprintf(stderr, "usage: reference_logits MODEL < ids.json > logits.f64\n");
    return 2;
  }
  const auto file = artifact::Gguf::open(argv[1]);
  const auto ids = parse_json(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  if (!file || !ids || !ids->is_array()) {
    std::fprintf(stderr, "%s\n",
                 file ? "stdin is not an array of ids" : file.error().message.c_str());
    return 1;
  }
  std::vector<std::int32_t> tokens;
  for (const json::value& id : ids->as_array())
    tokens.push_back(static_cast<std::int32_t>(id.to_number<std::int64_t>()));
  const std::vector<double> logits = testing::reference_logits(**file, tokens);
  return std::fwrite(logits.data(), sizeof(double), logits.size(), stdout) == logits.size() ? 0 : 1;
}
