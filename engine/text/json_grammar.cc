#include "engine/text/json_grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>

#include "engine/base/check.h"
#include "engine/text/json_schema_merge.h"
#include "engine/text/json_shapes.h"

namespace ponder::text {
namespace {

std::atomic<std::uint64_t> compile_count{0};

constexpr std::size_t kMaxOps = 1u << 20;
constexpr std::size_t kMaxPool = 4u << 20;

using Op = JsonOp::Kind;
using Place = std::uint32_t;

class Emitter {
 public:
  explicit Emitter(const std::vector<JsonNode>& nodes) : nodes_(nodes) {}

  Result<std::shared_ptr<const JsonGrammar>> program() {
    g_ = std::make_shared<JsonGrammar>();
    g_->ops.reserve(64);  // g++ 14 warns falsely of a write past the first op's room
    g_->start_after_tag = blank(Blank::lead);
    g_->start = add(Op::call, 0, 0);
    add(Op::halt);
    for (const JsonNode& node : nodes_) {
      entries_.push_back(here());
      choice(node.shapes.size(), [&](std::size_t i) { shape(node.shapes[i]); });
      if (g_->ops.size() > kMaxOps || g_->pool.size() > kMaxPool)
        return bad_schema("the schema is too big");
    }
    for (JsonOp& op : g_->ops)
      if (op.kind == Op::call) op.a = entries_[op.a];  // were numbers of nodes
    return std::shared_ptr<const JsonGrammar>(std::move(g_));
  }

 private:
  Place here() const { return static_cast<Place>(g_->ops.size()); }
  Place add(Op kind, std::uint32_t a = 0, std::uint32_t b = 0) {
    g_->ops.push_back({kind, a, b});
    return here() - 1;
  }
  JsonOp& at(Place place) { return g_->ops[place]; }

  Place blank(Blank where) { return add(Op::blank, static_cast<std::uint32_t>(where)); }
  Place literal(std::string_view text) {
    if (text.empty()) return here();
    const auto from = static_cast<std::uint32_t>(g_->pool.size());
    g_->pool += text;
    return add(Op::literal, from, static_cast<std::uint32_t>(text.size()));
  }
  void value(int node) { add(Op::call, static_cast<std::uint32_t>(node), 1); }
  void deep(int levels) { add(Op::deep, static_cast<std::uint32_t>(levels)); }

  /// `n` branches one after another, each of which ends by itself; none is a dead end.
  template <class Emit>
  void choice(std::size_t n, Emit emit) {
    if (n == 0) add(Op::fail);
    for (std::size_t i = 0; i < n; ++i) {
      const bool last = i + 1 == n;
      const Place split = last ? 0 : add(Op::split, here() + 1);
      emit(i);
      if (!last) at(split).b = here();
    }
  }

  int height(int node) const { return nodes_[static_cast<std::size_t>(node)].height; }

  void shape(const JsonShape& s) {
    if (s.height > 0) deep(s.height);
    switch (s.kind) {
      case JsonShape::Kind::literals:
        return literals(s.texts);
      case JsonShape::Kind::string:
        add(Op::string, static_cast<std::uint32_t>(s.min),
            s.max == kNoLimit ? JsonGrammar::kNoMaximum : static_cast<std::uint32_t>(s.max));
        add(Op::ret);
        return;
      case JsonShape::Kind::number:
        add(Op::number, s.may_be_negative ? JsonGrammar::kSigned : 0, !s.may_be_positive);
        add(Op::ret);
        return;
      case JsonShape::Kind::integer:
        return integers(s.min, s.max);
      case JsonShape::Kind::object:
        return object(s);
      case JsonShape::Kind::array:
        return array(s);
    }
  }

  // --- literals: a tree of their bytes ----------------------------------------------------------

  void literals(const std::vector<std::string>& texts) {
    struct Range {
      std::size_t begin, end, same;  // texts that share their first `same` bytes
      std::size_t table, entry;      // the switch entry that leads here
    };
    std::vector<Range> open{{0, texts.size(), 0, SIZE_MAX, 0}};
    while (!open.empty()) {
      const Range r = open.back();
      open.pop_back();
      if (r.table != SIZE_MAX) g_->switches[r.table][r.entry].second = here();
      // What all of them share; the first and the last differ first, as they are sorted.
      const std::string& first = texts[r.begin];
      const std::string& last = texts[r.end - 1];
      std::size_t same = r.same;
      while (same < first.size() && same < last.size() && first[same] == last[same])
        ++same;
      literal(std::string_view(first).substr(r.same, same - r.same));
      std::size_t begin = r.begin;
      if (first.size() == same) {
        ++begin;
        if (begin < r.end) add(Op::split, here() + 1, here() + 2);
        add(Op::ret);
      }
      if (begin == r.end) continue;
      const std::size_t table = g_->switches.size();
      g_->switches.emplace_back();
      add(Op::branch, static_cast<std::uint32_t>(table));
      while (begin < r.end) {
        std::size_t end = begin + 1;
        while (end < r.end && texts[end][same] == texts[begin][same])
          ++end;
        g_->switches[table].push_back({static_cast<std::uint8_t>(texts[begin][same]), 0});
        open.push_back({begin, end, same + 1, table, g_->switches[table].size() - 1});
        begin = end;
      }
    }
  }

  // --- integers between two bounds --------------------------------------------------------------

  /// Digits, then any others: "12", then one from '3' to '7', then two of any.
  struct Digits {
    std::string sign_and_head;
    char from = '0', to = '0';
    std::size_t any = 0;
  };

  /// All numbers of the length of `low` and `high`, from one to the other.
  static void same_length(const std::string& sign, const std::string& low, const std::string& high,
                          std::vector<Digits>& out) {
    const std::size_t n = low.size();
    std::size_t i = 0;
    while (i + 1 < n && low[i] == high[i])
      ++i;
    const bool from_first = low.find_first_not_of('0', i + 1) == std::string::npos;
    const bool to_last = high.find_first_not_of('9', i + 1) == std::string::npos;
    // low and what shares a head with it, then the digits between, then the same of high.
    for (std::size_t k = n - 1; !from_first && k > i; --k) {
      const char from = k == n - 1 ? low[k] : static_cast<char>(low[k] + 1);
      if (from <= '9') out.push_back({sign + low.substr(0, k), from, '9', n - 1 - k});
    }
    const char from = static_cast<char>(low[i] + (from_first ? 0 : 1));
    const char to = static_cast<char>(high[i] - (to_last ? 0 : 1));
    if (from <= to) out.push_back({sign + low.substr(0, i), from, to, n - 1 - i});
    for (std::size_t k = i + 1; !to_last && k < n; ++k) {
      const char most = k == n - 1 ? high[k] : static_cast<char>(high[k] - 1);
      if (most >= '0') out.push_back({sign + high.substr(0, k), '0', most, n - 1 - k});
    }
  }

  static void natural(const std::string& sign, std::int64_t low, std::int64_t high,
                      std::vector<Digits>& out) {
    while (low <= high) {
      const std::string from = std::to_string(low);
      const std::int64_t most = std::stoll(std::string(from.size(), '9'));
      same_length(sign, from, std::to_string(std::min(high, most)), out);
      low = most + 1;
    }
  }

  void integers(std::int64_t low, std::int64_t high) {
    if (high == kMostJsonInteger && (low == 0 || low == -kMostJsonInteger)) {
      add(Op::number, JsonGrammar::kIntegral | (low < 0 ? JsonGrammar::kSigned : 0));
      add(Op::ret);
      return;
    }
    std::vector<Digits> all;
    if (high >= 0) natural("", std::max<std::int64_t>(low, 0), high, all);
    if (low < 0) natural("-", std::max<std::int64_t>(1, -high), -low, all);
    choice(all.size(), [&](std::size_t i) {
      literal(all[i].sign_and_head);
      add(Op::digit, static_cast<std::uint8_t>(all[i].from), static_cast<std::uint8_t>(all[i].to));
      for (std::size_t k = 0; k < all[i].any; ++k)
        add(Op::digit, '0', '9');
      add(Op::ret);
    });
  }

  // --- objects ----------------------------------------------------------------------------------

  std::uint32_t name_tree(const std::vector<JsonShape::Member>& members) {
    const auto root = static_cast<std::uint32_t>(g_->names.size());
    g_->names.emplace_back();
    for (const JsonShape::Member& member : members) {
      std::uint32_t now = root;
      for (const char c : member.name) {
        const auto byte = static_cast<std::uint8_t>(c);
        auto& next = g_->names[now].next;
        auto found = std::lower_bound(next.begin(), next.end(), std::pair(byte, 0u));
        if (found == next.end() || found->first != byte) {
          found = next.insert(found, {byte, static_cast<std::uint32_t>(g_->names.size())});
          now = found->second;
          g_->names.emplace_back();
        } else {
          now = found->second;
        }
      }
      g_->names[now].is_end = true;
    }
    return root;
  }

  void member(const JsonShape::Member& m) {
    literal(to_json(json::string(m.name)) + ":");
    blank(Blank::after_colon);
    value(m.node);
  }

  /// The least height among the members that may come next after `i` of them; kMaxJsonDepth + 1
  /// where nothing may.
  std::vector<int> next_heights(const JsonShape& s) const {
    std::vector<int> least(s.members.size() + 1, kMaxJsonDepth + 1);
    if (s.extra >= 0) least.back() = height(s.extra);
    for (std::size_t i = s.members.size(); i-- > 0;) {
      const int mine = height(s.members[i].node);
      least[i] = s.members[i].required ? mine : std::min(mine, least[i + 1]);
    }
    return least;
  }

  void object(const JsonShape& s) {
    const std::size_t n = s.members.size();
    const std::vector<int> least = next_heights(s);
    std::size_t last_required = 0;  // one past it
    for (std::size_t i = 0; i < n; ++i)
      if (s.members[i].required) last_required = i + 1;

    literal("{");
    if (last_required == 0) {
      add(Op::split, here() + 1, here() + 3);
      literal("}");
      add(Op::ret);
    }
    if (least[0] > kMaxJsonDepth) {
      add(Op::fail);
      return;
    }
    deep(1 + least[0]);
    blank(Blank::after_open);

    // chain(i): one of the members from i on must come. after(i): members up to i are done with.
    std::vector<Place> chain(n + 1);
    std::vector<std::pair<Place, std::size_t>> to_chain;  // jumps to fill in
    for (std::size_t i = 0; i <= n; ++i) {
      chain[i] = here();
      if (i == n && s.extra < 0) {
        add(Op::fail);
        break;
      }
      Place skip = 0;
      const bool may_skip = i < n && !s.members[i].required;
      if (may_skip) skip = add(Op::split, here() + 1);
      if (i < n) {
        if (may_skip) deep(1 + height(s.members[i].node));
        member(s.members[i]);
      } else {
        deep(1 + height(s.extra));
        add(Op::key, name_tree(s.members));
        literal(":");
        blank(Blank::after_colon);
        value(s.extra);
      }
      after(std::min(i + 1, n), last_required, least, to_chain);
      if (may_skip) at(skip).b = here();
    }
    for (const auto& [place, i] : to_chain)
      at(place).a = chain[i];
  }

  void after(std::size_t i, std::size_t last_required, const std::vector<int>& least,
             std::vector<std::pair<Place, std::size_t>>& to_chain) {
    const bool may_end = i >= last_required;
    const bool may_go_on = least[i] <= kMaxJsonDepth;
    if (may_end) {
      const Place split = may_go_on ? add(Op::split, here() + 1) : 0;
      blank(Blank::before_close);
      literal("}");
      add(Op::ret);
      if (may_go_on) at(split).b = here();
    }
    if (!may_go_on) return;
    deep(1 + least[i]);
    literal(",");
    blank(Blank::after_comma);
    to_chain.emplace_back(add(Op::jump), i);
  }

  // --- arrays -----------------------------------------------------------------------------------

  void end_array() {
    blank(Blank::before_close);
    literal("]");
    add(Op::ret);
  }

  void array(const JsonShape& s) {
    const auto listed = static_cast<std::int64_t>(s.prefix.size());
    const auto node_at = [&](std::int64_t i) {
      return i < listed ? s.prefix[static_cast<std::size_t>(i)] : s.rest;
    };
    literal("[");
    if (s.min == 0) {
      add(Op::split, here() + 1, here() + 3);
      literal("]");
      add(Op::ret);
    }
    if (s.max == 0) {
      add(Op::fail);
      return;
    }
    deep(1 + height(node_at(0)));
    blank(Blank::after_open);
    for (std::int64_t i = 0; i < std::min(listed, s.max); ++i) {
      value(s.prefix[static_cast<std::size_t>(i)]);
      const bool goes_on = i + 1 < s.max;
      if (i + 1 >= s.min) {
        const Place split = goes_on ? add(Op::split, here() + 1) : 0;
        end_array();
        if (goes_on) at(split).b = here();
      }
      if (!goes_on) return;
      deep(1 + height(node_at(i + 1)));
      literal(",");
      blank(Blank::after_comma);
    }
    // The rest, counted as far as a bound asks.
    const bool bounded = s.max != kNoLimit;
    const auto most = static_cast<std::uint32_t>(bounded ? s.max : std::max(s.min, listed));
    add(Op::reset, static_cast<std::uint32_t>(listed));
    const Place item = here();
    value(s.rest);
    add(Op::count, most);
    const Place split = add(Op::split, here() + 1);
    add(Op::at_least, static_cast<std::uint32_t>(s.min));
    end_array();
    at(split).b = here();
    if (bounded) add(Op::below, most);
    deep(1 + height(s.rest));
    literal(",");
    blank(Blank::after_comma);
    add(Op::jump, item);
  }

  const std::vector<JsonNode>& nodes_;
  std::shared_ptr<JsonGrammar> g_;
  std::vector<Place> entries_;  // of each node
};

}  // namespace

std::uint64_t JsonGrammar::compiled() {
  return compile_count;
}

Result<std::shared_ptr<const JsonGrammar>> JsonGrammar::compile(const json::object& schema) {
  ++compile_count;
  TRY(const std::vector<JsonNode> nodes, json_shapes(schema));
  return Emitter(nodes).program();
}

}  // namespace ponder::text
