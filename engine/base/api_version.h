#pragma once
// The version of what daemon and clients say to each other. The daemon names it in every answer;
// it grows when a client of the version before could no longer be served as it expects. New fields,
// resources and options need no new version.
#include <string_view>

namespace ponder {

inline constexpr int kApiVersion = 1;
inline constexpr std::string_view kApiHeader = "Ponder-Api";

}  // namespace ponder
