#pragma once
// A JSON schema in normal form: references followed, combinations multiplied out, every value a
// choice of plain shapes. Drafts 4 to 2020-12, as far as the keywords say what a text looks like:
// type, enum, const, properties, required, additionalProperties, items, prefixItems,
// additionalItems, minItems, maxItems, minLength, maxLength, minimum, maximum and the exclusive
// ones (integers exactly, other numbers by their sign), anyOf, oneOf (as anyOf), allOf, $ref to
// "#..." with any recursion. Other keywords bound nothing here.
//
// The shapes describe a subset of what the schema accepts, the one that a writer would choose:
// properties in the order of the schema, an object that lists its properties has no others unless
// additionalProperties says so, an array no more items than are described.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::text {

/// Eighteen digits are an integer to every reader. The bound of one without bounds.
constexpr std::int64_t kMostJsonInteger = 999'999'999'999'999'999;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

struct JsonShape {
  enum class Kind { literals, string, integer, number, object, array } kind = Kind::literals;
  std::vector<std::string> texts = {};  ///< literals: whole JSON texts, sorted
  std::int64_t min = 0;                 ///< string: characters, array: items, integer: the value
  std::int64_t max = kNoLimit;
  bool may_be_negative = true, may_be_positive = true;  ///< number

  struct Member {
    std::string name;
    int node = -1;
    bool required = false;
  };
  std::vector<Member> members = {};  ///< object
  int extra = -1;                    ///< object: the values of other names; -1: no others
  std::vector<int> prefix = {};      ///< array
  int rest = -1;                     ///< array: the items after the prefix; -1: none

  int height = 0;  ///< the least nesting of a value of this shape; a scalar has 0
};

struct JsonNode {
  std::vector<JsonShape> shapes;
  int height = 0;
};

/// Deeper texts than this are neither demanded nor allowed.
constexpr int kMaxJsonDepth = 48;

/// Node 0 is the whole text. Every shape in it can be completed. bad_request (param "schema") for
/// a schema that is malformed, refers to nowhere, accepts nothing, or is too big.
Result<std::vector<JsonNode>> json_shapes(const json::object& schema);

}  // namespace ponder::text
