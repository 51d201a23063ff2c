// Chooses the CPU's op table; the only place that reads PONDER_CPU.
#include <fmt/format.h>

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/table.h"

namespace ponder::kernels {
namespace {

struct InstructionSet {
  std::string_view name;
  const OpTable* (*table)();
  bool (*runs_here)();
};

#if defined(__x86_64__)
// The compiler's runtime also asks the system whether it saves the wide registers.
// clang 14 does not know F16C by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#else
bool has_avx2() {
  return false;
}
bool has_avx512() {
  return false;
}
#endif

// Best last.
constexpr InstructionSet kSets[] = {
    {"plain", plain_table, [] { return true; }},
    {"avx2", avx2_table, has_avx2},
    {"avx512", avx512_table, has_avx512},
};

}  // namespace

std::vector<const OpTable*> runnable_cpu_ops() {
  std::vector<const OpTable*> tables;
  for (const InstructionSet& set : kSets)
    if (set.runs_here() && set.table() != nullptr) tables.push_back(set.table());
  return tables;
}

Result<const OpTable*> cpu_ops(std::string_view name) {
  const bool from_environment = name.empty();
  if (from_environment) {
    const char* wanted = std::getenv("PONDER_CPU");
    if (wanted != nullptr) name = wanted;
  }
  const std::vector<const OpTable*> tables = runnable_cpu_ops();
  if (name.empty()) return tables.back();
  for (const OpTable* table : tables)
    if (table->name == name) return table;
  const std::string where = from_environment ? "PONDER_CPU=" : "";
  for (const InstructionSet& set : kSets)
    if (set.name == name)
      return fail(ErrorCode::bad_request,
                  fmt::format("{}{}: this processor cannot run that instruction set.", where, name),
                  fmt::format("The best it can run is {}.", tables.back()->name));
  return fail(ErrorCode::bad_request,
              fmt::format("{}{}: there is no such instruction set.", where, name),
              "Use plain, avx2 or avx512, or leave it unset.");
}

}  // namespace ponder::kernels
