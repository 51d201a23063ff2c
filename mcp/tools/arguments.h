#pragma once
// Checks the arguments of a call against the tool's table. A model wrote them, so every complaint
// says what is right. Pure functions.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace ponder::mcp {

struct Argument {
  enum class Kind {
    text,    ///< min to max characters
    words,   ///< one of `words`
    whole,   ///< an integer from min to max
    number,  ///< from min to max
    flag,    ///< true or false
    object,
    texts,   ///< min to max strings
    effort,  ///< an effort word or a whole number of thinking tokens
  };
  std::string_view name;
  Kind kind = Kind::text;
  bool required = false;
  double min = 0;
  double max = 1e15;
  std::span<const std::string_view> words = {};
  std::string_view advice = {};  ///< added to the complaint about this argument
};

/// Takes out null arguments, then checks the rest. Nothing, or everything that is wrong in one
/// text, which names the tool and lists its arguments where a name is wrong or missing.
std::optional<std::string> check_arguments(std::string_view tool, std::span<const Argument> table,
                                           json::object& arguments);

// Reading checked arguments: absent gives the fallback.
std::string text_argument(const json::object& arguments, std::string_view name);
std::int64_t whole_argument(const json::object& arguments, std::string_view name,
                            std::int64_t fallback);
double number_argument(const json::object& arguments, std::string_view name, double fallback);
bool flag_argument(const json::object& arguments, std::string_view name);

/// `wait_s`, at most `bound`. A larger one is lowered, and `note` says so.
double bounded_wait(const json::object& arguments, double fallback, double bound,
                    std::string& note);
/// Appends to a note, with "; " between.
void add_note(std::string& note, std::string_view more);

}  // namespace ponder::mcp
