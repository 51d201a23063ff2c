#pragma once
// A JSON schema as a program that reads a text byte by byte: several threads of it run at once
// where the schema leaves a choice, each with a stack (json_automaton.h runs it). White space is
// what a compact or a two-space-indented writer makes, so that no text can go on in blanks alone.
// Immutable; shared by all outputs of one request's schema.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::text {

struct JsonOp {
  enum class Kind : std::uint8_t {
    halt,      // the text is complete
    literal,   // the bytes pool[a, a + b)
    branch,    // one byte of switches[a]: goes on where it says
    digit,     // one byte from a to b
    string,    // a JSON string of at least a and at most b characters
    key,       // the quoted name of a member: no escapes, none of names[a], none twice in an object
    number,    // a: kSigned it may have a sign, kIntegral no point and exponent; b: it must
               // have a sign
    blank,     // white space, a Blank; may be nothing
    split,     // goes on at a and at b
    jump,      // goes on at a
    call,      // reads the value at a, b levels deeper
    ret,       // the value is complete
    deep,      // stops where a levels more are too many
    reset,     // counts from a
    count,     // one more, up to a
    at_least,  // stops where fewer than a were counted
    below,     // stops where a or more were
    fail,      // stops
  } kind = Kind::fail;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
};

/// Where white space stands, which says how much of it may be.
enum class Blank : std::uint32_t {
  lead,        // before the text: two line breaks
  after_open,  // after { and [
  after_comma,
  after_colon,
  before_close,
};

class JsonGrammar {
 public:
  /// bad_request (param "schema") for a schema that is malformed, accepts nothing, or is too big.
  static Result<std::shared_ptr<const JsonGrammar>> compile(const json::object& schema);
  /// How often that was done in this process; it can take a good part of a second.
  static std::uint64_t compiled();

  static constexpr std::uint32_t kSigned = 1, kIntegral = 2;
  static constexpr std::uint32_t kNoMaximum = 0xFFFFFFFF;
  /// A set of names as a tree of bytes.
  struct NameNode {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> next;  // ascending
    bool is_end = false;
  };
  using Switch = std::vector<std::pair<std::uint8_t, std::uint32_t>>;  // byte, op; ascending

  std::vector<JsonOp> ops;
  std::string pool;
  std::vector<Switch> switches;
  std::vector<NameNode> names;        // several trees; a key op knows its root
  std::uint32_t start = 0;            // the whole text
  std::uint32_t start_after_tag = 0;  // the same, line breaks before it allowed
};

}  // namespace ponder::text
