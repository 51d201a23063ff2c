#include "engine/text/json_constraint.h"

#include <algorithm>
#include <utility>

#include "engine/text/sorted_vocabulary.h"

namespace ponder::text {
namespace {

constexpr std::size_t kRemembered = 32;
// A walk that takes more is given up, about a second: a schema of very many choices. What it found
// and the tokens of one byte are allowed then.
constexpr std::uint64_t kMaxWork = 40'000'000;

}  // namespace

JsonConstraint::JsonConstraint(const Tokenizer& tokenizer,
                               std::shared_ptr<const JsonGrammar> grammar, bool after_tag)
    : tokenizer_(tokenizer),
      automaton_(std::move(grammar), after_tag),
      state_(automaton_.start()) {}

bool JsonConstraint::push(TokenId id) {
  if (!advance(state_, id)) return false;
  if (automaton_.tidy(state_)) remembered_.clear();
  return true;
}

bool JsonConstraint::advance(State& state, TokenId id) const {
  if (!tokenizer_.sorted().contains(id)) return false;
  scratch_[0] = state;
  for (const char c : tokenizer_.bytes_of(id)) {
    if (!automaton_.step(scratch_[0], static_cast<std::uint8_t>(c), scratch_[1])) return false;
    std::swap(scratch_[0], scratch_[1]);
  }
  std::swap(state, scratch_[0]);
  return true;
}

bool JsonConstraint::allows(const State& state, TokenId id) const {
  if (tokenizer_.is_end(id)) return automaton_.complete(state);
  State copy = state;
  return advance(copy, id);
}

const std::vector<TokenId>& JsonConstraint::allowed(const State& state) const {
  const auto at = remembered_.find(state);
  if (at != remembered_.end()) return at->second;
  if (remembered_.size() >= kRemembered) remembered_.clear();
  return remembered_[state] = walk(state);
}

std::vector<TokenId> JsonConstraint::walk(const State& state) const {
  std::vector<TokenId> ids;
  const auto entries = tokenizer_.sorted().entries();
  std::vector<State> after(1, state);  // [n]: after the first n bytes of the entry
  std::size_t alive = 0;               // so many bytes of the last entry tried were taken
  const std::uint64_t began = automaton_.work();
  for (const SortedVocabulary::Entry& entry : entries) {
    // It has the byte at which the one before was refused.
    if (entry.shared > alive) continue;
    if (automaton_.work() - began > kMaxWork) {
      add_single_bytes(state, ids);
      break;
    }
    alive = entry.shared;
    while (alive < entry.bytes.size()) {
      if (after.size() <= alive + 1) after.emplace_back();
      if (!automaton_.step(after[alive], static_cast<std::uint8_t>(entry.bytes[alive]),
                           after[alive + 1]))
        break;
      ++alive;
    }
    if (alive == entry.bytes.size()) ids.push_back(entry.id);
  }
  if (automaton_.complete(state))
    for (TokenId id = 0; id < tokenizer_.size(); ++id)
      if (tokenizer_.is_end(id)) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void JsonConstraint::add_single_bytes(const State& state, std::vector<TokenId>& ids) const {
  State after;
  for (const SortedVocabulary::Entry& entry : tokenizer_.sorted().entries())
    if (entry.bytes.size() == 1 &&
        automaton_.step(state, static_cast<std::uint8_t>(entry.bytes[0]), after))
      ids.push_back(entry.id);
}

}  // namespace ponder::text
