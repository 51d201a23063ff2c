#include "engine/run/grammars.h"

#include <algorithm>
#include <utility>

namespace ponder::run {

Grammars::Grammar Grammars::of(const json::object& schema) {
  std::string text = to_json(schema);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.schema == text; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front().grammar;
  }
  entries_.push_front({std::move(text), text::JsonGrammar::compile(schema)});
  if (entries_.size() > kMost) entries_.pop_back();
  return entries_.front().grammar;
}

}  // namespace ponder::run
