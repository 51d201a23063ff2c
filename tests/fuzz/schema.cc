// A JSON schema from a request, and an answer held against it. The input is the schema, a newline,
// and the answer.
#include "jobs/schema_check.h"

using namespace ponder;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = input.find('\n');
  const auto schema = parse_json(input.substr(0, line));
  if (!schema) return 0;
  const auto compiled = jobs::compile_schema(*schema);
  if (!compiled || line == std::string_view::npos) return 0;
  static_cast<void>(jobs::answer_fits_schema(*compiled, input.substr(line + 1)));
  return 0;
}
