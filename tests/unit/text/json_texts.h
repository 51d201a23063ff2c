#pragma once
// Random schemas and random texts of a grammar, for the tests of answers bound by a schema.
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/json_automaton.h"

namespace ponder::text {

/// A schema of the keywords that a grammar bounds.
json::value random_schema(std::mt19937& random, int depth);

/// What the validation library says of a text that must be JSON.
bool fits(const json::value& schema, const std::string& text);

/// The bytes that may follow.
std::vector<std::uint8_t> next_bytes(const JsonAutomaton& automaton,
                                     const JsonAutomaton::State& state);

/// Chooses byte after byte; past `hurry` bytes prefers those that close something. Nothing where
/// no byte may follow an unfinished text.
std::optional<std::string> random_text(const JsonAutomaton& automaton, std::mt19937& random,
                                       std::size_t hurry);

/// The grammar takes the whole text.
bool takes(const json::value& schema, const std::string& text);

}  // namespace ponder::text
