#pragma once
// Runs a JsonGrammar over bytes. A state is a small list of threads; each can still be completed,
// so that a text whose every byte was taken is the beginning of a whole one. A state is a plain
// value: copying it is how a byte is tried. Stacks are shared, so that equal states are equal
// values.
//
// One per output; not thread-safe, not even its const functions (they share the stacks' store).
#include <compare>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/text/json_grammar.h"

namespace ponder::text {

class JsonAutomaton {
 public:
  struct Thread {
    std::uint32_t op = 0;
    std::uint32_t inside = 0;  // how far into the op's bytes
    std::uint32_t count = 0;   // items of the array that is open
    std::uint32_t stack = 0;   // a frame
    std::uint32_t names = 0;   // of the object that is open: the last one read, 0 for none
    std::uint32_t hash = 0;    // of the name that is being read
    friend auto operator<=>(const Thread&, const Thread&) = default;
  };
  using State = std::vector<Thread>;

  /// `after_tag`: line breaks may come before the text.
  JsonAutomaton(std::shared_ptr<const JsonGrammar> grammar, bool after_tag);

  State start() const;
  /// The state after one byte; false, and `to` empty, where none may follow.
  bool step(const State& from, std::uint8_t byte, State& to) const;
  /// The text so far is whole.
  bool complete(const State& state) const;
  /// It is whole and nothing may follow.
  bool finished(const State& state) const;
  /// Forgets stacks that `state` does not need; true if that changed the numbers in it, and with
  /// that every other state.
  bool tidy(State& state);
  /// Threads followed and compared so far, in all calls: what time was spent on.
  std::uint64_t work() const { return work_; }

 private:
  struct Frame {
    std::uint32_t back, op, count, names, depth;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  struct Name {
    std::uint32_t before, hash;
    friend bool operator==(const Name&, const Name&) = default;
  };
  /// Values numbered from 1 in the order they came; equal ones have one number.
  template <class T>
  struct Store {
    std::vector<T> all{T{}};
    std::unordered_multimap<std::uint64_t, std::uint32_t> places;
    std::uint32_t put(const T& value, std::uint64_t hash);
  };

  void add(Thread thread, State& to) const;
  void read_string(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const;
  void read_key(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const;
  void read_number(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const;
  void read_blank(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const;
  void next(Thread t, State& to) const;
  std::uint32_t push(const Frame& frame) const;
  std::uint32_t remember(std::uint32_t names, std::uint32_t hash) const;
  bool was_read(std::uint32_t names, std::uint32_t hash) const;

  std::shared_ptr<const JsonGrammar> grammar_;
  bool after_tag_;
  mutable Store<Frame> frames_;
  mutable Store<Name> names_;
  mutable State pending_;  // scratch of add()
  mutable std::uint64_t work_ = 0;
  mutable std::uint64_t work_limit_ = 0;  // of the step that runs
};

}  // namespace ponder::text
