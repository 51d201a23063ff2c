#pragma once
// Tokens to the parsed template, with Jinja2's grammar. Unknown tags, filters and tests are
// faults here, with their line, so that a file that needs them is refused when it is loaded.
#include <memory>
#include <string_view>

#include "engine/text/jinja/ast.h"

namespace ponder::text::jinja {

/// Longest template source accepted; known ones are below 32 KiB.
constexpr std::size_t kMaxSourceBytes = std::size_t{256} << 10;

Outcome<std::unique_ptr<Program>> parse(std::string_view source);

}  // namespace ponder::text::jinja
