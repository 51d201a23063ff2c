#include "engine/text/json_automaton.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/text/json_shapes.h"

namespace ponder::text {
namespace {

using Op = JsonOp::Kind;

// A schema with more choices at one byte than this, or that takes more work to find them, loses the
// last ones; each of the others can still be completed.
constexpr std::size_t kMaxThreads = 512;
constexpr std::uint64_t kMaxWorkPerByte = 1u << 15;
constexpr std::size_t kMaxFrames = 1u << 16;  // then those out of use are forgotten

constexpr std::uint32_t kIndent = 2;
constexpr std::uint32_t kMostInteger = 18;  // digits
constexpr std::uint32_t kMostDigits = 15;   // of a number before and after its point
constexpr std::uint32_t kMostExponent = 2;

// Where a string is, in the low byte of Thread::inside.
enum Inside : std::uint32_t {
  kBefore,
  kContent,
  kEscape,
  kHex1,  // of \u
  kHex2,
  kHex3,
  kHex4,
  kHex2AfterD,  // below 8, or the first half of a pair
  kPairHex3,
  kPairHex4,
  kPairBackslash,
  kPairU,
  kPairD,
  kPairHigh,
  kMore1,  // bytes of a character
  kMore2,
  kMore3,
  kAfterE0,
  kAfterED,
  kAfterF0,
  kAfterF4,
};

// Where a number is.
enum InNumber : std::uint32_t {
  kStart,
  kSign,
  kZero,
  kInteger,
  kPoint,
  kFraction,
  kE,
  kESign,
  kExponent,
};

bool between(std::uint8_t byte, int low, int high) {
  return byte >= low && byte <= high;
}
bool is_digit(std::uint8_t byte) {
  return between(byte, '0', '9');
}
bool is_hex(std::uint8_t byte) {
  return is_digit(byte) || between(byte | 0x20, 'a', 'f');
}

/// The state after the first byte of a character in a string; kBefore for a byte that starts none.
std::uint32_t first_byte(std::uint8_t byte) {
  if (between(byte, 0x20, 0x7F)) return kContent;
  if (between(byte, 0xC2, 0xDF)) return kMore1;
  if (byte == 0xE0) return kAfterE0;
  if (byte == 0xED) return kAfterED;
  if (between(byte, 0xE1, 0xEF)) return kMore2;
  if (byte == 0xF0) return kAfterF0;
  if (between(byte, 0xF1, 0xF3)) return kMore3;
  return byte == 0xF4 ? kAfterF4 : kBefore;
}
/// The state after another byte of it; kBefore for a wrong one.
std::uint32_t later_byte(std::uint32_t state, std::uint8_t byte) {
  const auto then = [&](int low, int high, std::uint32_t to) {
    return between(byte, low, high) ? to : static_cast<std::uint32_t>(kBefore);
  };
  switch (state) {
    case kMore1:
      return then(0x80, 0xBF, kContent);
    case kMore2:
      return then(0x80, 0xBF, kMore1);
    case kMore3:
      return then(0x80, 0xBF, kMore2);
    case kAfterE0:
      return then(0xA0, 0xBF, kMore1);
    case kAfterED:
      return then(0x80, 0x9F, kMore1);
    case kAfterF0:
      return then(0x90, 0xBF, kMore2);
    case kAfterF4:
      return then(0x80, 0x8F, kMore2);
    default:
      return kBefore;
  }
}
/// The same for the bytes of an escape.
std::uint32_t escape_byte(std::uint32_t state, std::uint8_t byte) {
  const std::uint8_t lower = byte | 0x20;
  switch (state) {
    case kEscape:
      if (byte == 'u') return kHex1;
      return std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos
                 ? kContent
                 : kBefore;
    case kHex1:
      return !is_hex(byte) ? kBefore : lower == 'd' ? kHex2AfterD : kHex2;
    case kHex2:
      return is_hex(byte) ? kHex3 : kBefore;
    case kHex2AfterD:
      return between(byte, '0', '7')                                   ? kHex3
             : between(byte, '8', '9') || lower == 'a' || lower == 'b' ? kPairHex3
                                                                       : kBefore;
    case kHex3:
      return is_hex(byte) ? kHex4 : kBefore;
    case kHex4:
      return is_hex(byte) ? kContent : kBefore;
    case kPairHex3:
      return is_hex(byte) ? kPairHex4 : kBefore;
    case kPairHex4:
      return is_hex(byte) ? kPairBackslash : kBefore;
    case kPairBackslash:
      return byte == '\\' ? kPairU : kBefore;
    case kPairU:
      return byte == 'u' ? kPairD : kBefore;
    case kPairD:
      return lower == 'd' ? kPairHigh : kBefore;
    case kPairHigh:
      return between(lower, 'c', 'f') ? kHex3 : kBefore;
    default:
      return kBefore;
  }
}

std::uint64_t mix(std::uint64_t seed, std::uint64_t x) {
  x ^= seed * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr std::uint32_t kFnvStart = 2166136261u;
std::uint32_t fnv(std::uint32_t hash, std::uint8_t byte) {
  return (hash ^ byte) * 16777619u;
}

constexpr std::uint32_t kOffTree = 0xFFFFFF;  // this name is none of the listed ones

}  // namespace

template <class T>
std::uint32_t JsonAutomaton::Store<T>::put(const T& value, std::uint64_t hash) {
  const auto [begin, end] = places.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (all[at->second] == value) return at->second;
  const auto place = static_cast<std::uint32_t>(all.size());
  all.push_back(value);
  places.emplace(hash, place);
  return place;
}

JsonAutomaton::JsonAutomaton(std::shared_ptr<const JsonGrammar> grammar, bool after_tag)
    : grammar_(std::move(grammar)), after_tag_(after_tag) {}

std::uint32_t JsonAutomaton::push(const Frame& f) const {
  const std::uint64_t hash = mix(mix(mix(mix(f.depth, f.names), f.count), f.op), f.back);
  return frames_.put(f, hash);
}

std::uint32_t JsonAutomaton::remember(std::uint32_t names, std::uint32_t hash) const {
  return names_.put({names, hash}, mix(names, hash));
}

bool JsonAutomaton::was_read(std::uint32_t names, std::uint32_t hash) const {
  for (; names != 0; names = names_.all[names].before)
    if (names_.all[names].hash == hash) return true;
  return false;
}

JsonAutomaton::State JsonAutomaton::start() const {
  State state;
  work_limit_ = work_ + kMaxWorkPerByte;
  Thread first;
  first.op = after_tag_ ? grammar_->start_after_tag : grammar_->start;
  add(first, state);
  return state;
}

/// Follows what reads no byte; what is left waits for one. A program has no way round without
/// reading, so this ends.
void JsonAutomaton::add(Thread thread, State& to) const {
  const std::size_t bottom = pending_.size();
  pending_.push_back(thread);
  while (pending_.size() > bottom) {
    if (to.size() >= kMaxThreads || work_ >= work_limit_) {
      pending_.resize(bottom);
      return;
    }
    work_ += 1 + to.size() / 16;  // it may be compared with all of them
    Thread t = pending_.back();
    pending_.pop_back();
    const JsonOp& op = grammar_->ops[t.op];
    const auto go = [&](std::uint32_t at) {
      t.op = at;
      pending_.push_back(t);
    };
    switch (op.kind) {
      case Op::split:
        go(op.b);
        go(op.a);
        break;
      case Op::jump:
        go(op.a);
        break;
      case Op::call: {
        const std::uint32_t depth = frames_.all[t.stack].depth + op.b;
        t.stack = push({t.stack, t.op + 1, t.count, t.names, depth});
        t.count = t.names = 0;
        go(op.a);
        break;
      }
      case Op::ret: {
        const Frame f = frames_.all[t.stack];
        t = {f.op, 0, f.count, f.back, f.names, 0};
        pending_.push_back(t);
        break;
      }
      case Op::deep:
        if (frames_.all[t.stack].depth + op.a <= kMaxJsonDepth) go(t.op + 1);
        break;
      case Op::reset:
        t.count = op.a;
        go(t.op + 1);
        break;
      case Op::count:
        t.count = std::min(t.count + 1, op.a);
        go(t.op + 1);
        break;
      case Op::at_least:
        if (t.count >= op.a) go(t.op + 1);
        break;
      case Op::below:
        if (t.count < op.a) go(t.op + 1);
        break;
      case Op::fail:
        break;
      case Op::blank:
        if (t.inside == 0) pending_.push_back({t.op + 1, 0, t.count, t.stack, t.names, 0});
        [[fallthrough]];
      default:
        if (std::find(to.begin(), to.end(), t) == to.end()) to.push_back(t);
    }
  }
}

void JsonAutomaton::next(Thread t, State& to) const {
  ++t.op;
  t.inside = 0;
  add(t, to);
}

bool JsonAutomaton::step(const State& from, std::uint8_t byte, State& to) const {
  to.clear();
  work_limit_ = work_ + kMaxWorkPerByte;
  for (const Thread& t : from) {
    const JsonOp& op = grammar_->ops[t.op];
    switch (op.kind) {
      case Op::literal:
        if (static_cast<std::uint8_t>(grammar_->pool[op.a + t.inside]) != byte) break;
        if (t.inside + 1 == op.b) {
          next(t, to);
        } else {
          Thread on = t;
          ++on.inside;
          add(on, to);
        }
        break;
      case Op::branch: {
        const auto& table = grammar_->switches[op.a];
        const auto at = std::lower_bound(table.begin(), table.end(), std::pair(byte, 0u));
        if (at == table.end() || at->first != byte) break;
        Thread on = t;
        on.op = at->second;
        add(on, to);
        break;
      }
      case Op::digit:
        if (between(byte, static_cast<int>(op.a), static_cast<int>(op.b))) next(t, to);
        break;
      case Op::string:
        read_string(t, op, byte, to);
        break;
      case Op::key:
        read_key(t, op, byte, to);
        break;
      case Op::number:
        read_number(t, op, byte, to);
        break;
      case Op::blank:
        read_blank(t, op, byte, to);
        break;
      default:
        break;
    }
  }
  return !to.empty();
}

void JsonAutomaton::read_string(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const {
  std::uint32_t state = t.inside & 0xFF;
  std::uint32_t characters = t.inside >> 8;
  if (state == kBefore) {
    if (byte != '"') return;
    state = kContent;
  } else if (state == kContent) {
    if (byte == '"') {
      if (characters >= op.a) next(t, to);
      return;
    }
    if (characters >= op.b) return;
    state = byte == '\\' ? static_cast<std::uint32_t>(kEscape) : first_byte(byte);
    // Counted only as far as it matters, so that states are few.
    if (op.b != JsonGrammar::kNoMaximum || characters < op.a) ++characters;
  } else {
    state = state >= kMore1 ? later_byte(state, byte) : escape_byte(state, byte);
  }
  if (state == kBefore) return;
  t.inside = state | characters << 8;
  add(t, to);
}

void JsonAutomaton::read_key(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const {
  std::uint32_t state = t.inside & 0xFF;
  std::uint32_t place = t.inside >> 8;
  if (state == kBefore) {
    if (byte != '"') return;
    t.hash = kFnvStart;
    t.inside = kContent | op.a << 8;
    return add(t, to);
  }
  if (state == kContent && byte == '"') {
    if (place != kOffTree && grammar_->names[place].is_end) return;
    if (was_read(t.names, t.hash)) return;
    t.names = remember(t.names, t.hash);
    t.hash = 0;
    return next(t, to);
  }
  // An escape could spell a listed name in a second way.
  if (state == kContent && byte == '\\') return;
  state = state == kContent ? first_byte(byte) : later_byte(state, byte);
  if (state == kBefore) return;
  if (place != kOffTree) {
    const auto& branches = grammar_->names[place].next;
    const auto at = std::lower_bound(branches.begin(), branches.end(), std::pair(byte, 0u));
    place = at != branches.end() && at->first == byte ? at->second : kOffTree;
  }
  t.hash = fnv(t.hash, byte);
  t.inside = state | place << 8;
  add(t, to);
}

void JsonAutomaton::read_number(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const {
  const bool signs = (op.a & JsonGrammar::kSigned) != 0;
  const bool integer = (op.a & JsonGrammar::kIntegral) != 0, must_sign = op.b != 0;
  const std::uint32_t state = t.inside & 0xFF;
  const std::uint32_t digits = t.inside >> 8;
  const std::uint8_t lower = byte | 0x20;
  std::uint32_t after = kStart, count = 0;
  switch (state) {
    case kStart:
    case kSign:
      if (state == kStart && byte == '-' && signs)
        after = kSign;
      else if (state == kStart && must_sign)
        return;
      else if (byte == '0' && !(integer && state == kSign))
        after = kZero;
      else if (between(byte, '1', '9'))
        after = kInteger, count = 1;
      break;
    case kZero:
    case kInteger:
      if (state == kInteger && is_digit(byte)) {
        if (digits >= (integer ? kMostInteger : kMostDigits)) return;
        after = kInteger, count = digits + 1;
      } else if (byte == '.' && !integer) {
        after = kPoint;
      } else if (lower == 'e' && !integer) {
        after = kE;
      }
      break;
    case kPoint:
    case kFraction:
      if (is_digit(byte) && digits < kMostDigits)
        after = kFraction, count = digits + 1;
      else if (state == kFraction && lower == 'e')
        after = kE;
      break;
    case kE:
    case kESign:
    case kExponent:
      if (is_digit(byte) && digits < kMostExponent)
        after = kExponent, count = digits + 1;
      else if (state == kE && (byte == '+' || byte == '-'))
        after = kESign;
      break;
    default:
      break;
  }
  if (after == kStart) return;
  t.inside = after | count << 8;
  // Where no digit may follow either, it is over: a text that ends here is finished.
  const bool over = (integer && (after == kZero || count == kMostInteger)) ||
                    (after == kExponent && count == kMostExponent);
  if (!over) add(t, to);
  if (after == kZero || after == kInteger || after == kFraction || after == kExponent) next(t, to);
}

void JsonAutomaton::read_blank(Thread t, const JsonOp& op, std::uint8_t byte, State& to) const {
  const auto where = static_cast<Blank>(op.a);
  if (where == Blank::lead) {
    if (byte != '\n' || t.inside > 1) return;
    ++t.inside;
    // Both ways on: another line break, or the text.
    if (t.inside < 2) add(t, to);
    return next(t, to);
  }
  if (t.inside == 0 && byte == ' ' && (where == Blank::after_colon || where == Blank::after_comma))
    return next(t, to);
  if (where == Blank::after_colon) return;
  const std::uint32_t depth = frames_.all[t.stack].depth + (where == Blank::before_close ? 0 : 1);
  if (byte != (t.inside == 0 ? '\n' : ' ')) return;
  ++t.inside;
  if (t.inside > kIndent * depth) return next(t, to);
  add(t, to);
}

bool JsonAutomaton::complete(const State& state) const {
  return std::any_of(state.begin(), state.end(),
                     [&](const Thread& t) { return grammar_->ops[t.op].kind == Op::halt; });
}

bool JsonAutomaton::finished(const State& state) const {
  return state.size() == 1 && complete(state);
}

bool JsonAutomaton::tidy(State& state) {
  if (frames_.all.size() < kMaxFrames && names_.all.size() < kMaxFrames) return false;
  const Store<Frame> frames = std::exchange(frames_, {});
  const Store<Name> names = std::exchange(names_, {});
  // Lists and stacks from their ends upwards: an entry's number is known before it is needed.
  std::unordered_map<std::uint32_t, std::uint32_t> new_name{{0, 0}}, new_frame{{0, 0}};
  std::vector<std::uint32_t> path;
  const auto keep_names = [&](std::uint32_t name) {
    for (path.clear(); !new_name.contains(name); name = names.all[name].before)
      path.push_back(name);
    for (; !path.empty(); path.pop_back()) {
      const Name& old = names.all[path.back()];
      new_name[path.back()] = remember(new_name[old.before], old.hash);
    }
  };
  std::vector<std::uint32_t> stack;
  for (Thread& t : state) {
    keep_names(t.names);
    t.names = new_name[t.names];
    std::uint32_t frame = t.stack;
    for (stack.clear(); !new_frame.contains(frame); frame = frames.all[frame].back)
      stack.push_back(frame);
    for (; !stack.empty(); stack.pop_back()) {
      Frame f = frames.all[stack.back()];
      keep_names(f.names);
      f.names = new_name[f.names];
      f.back = new_frame[f.back];
      new_frame[stack.back()] = push(f);
    }
    t.stack = new_frame[t.stack];
  }
  return true;
}

}  // namespace ponder::text
