#pragma once
// The database's schema, step by step: number i brings user_version i to i + 1. The texts are the
// files of jobs/migrations/, embedded at build time.
#include <array>

namespace ponder::jobs {
extern const std::array<const char*, 3> kMigrations;
}
