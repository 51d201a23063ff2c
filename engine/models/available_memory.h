#pragma once
// Memory that could be had now without swapping.
#include <cstdint>
#include <filesystem>
#include <optional>

namespace ponder::models {

/// In bytes: the least of what the machine has available and what the control group (either
/// version) may still take. A group's page cache counts as free, since the kernel gives it back.
/// Nothing where neither is known. `root` is where proc and sys are found; tests have their own.
std::optional<std::uint64_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace ponder::models
