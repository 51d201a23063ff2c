#pragma once
// The grammars of the schemas that were used last, so that each is compiled once: a job's is asked
// for when it is planned and when it is started, and again when it is resumed. Not thread-safe; the
// engine's prep thread owns one.
#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/text/json_grammar.h"

namespace ponder::run {

class Grammars {
 public:
  using Grammar = Result<std::shared_ptr<const text::JsonGrammar>>;

  /// As JsonGrammar::compile, refusals too.
  Grammar of(const json::object& schema);

  static constexpr std::size_t kMost = 8;  ///< kept

 private:
  struct Entry {
    std::string schema;  ///< its text: keys in another order are another schema
    Grammar grammar;
  };
  std::list<Entry> entries_;  ///< the one used last first
};

}  // namespace ponder::run
