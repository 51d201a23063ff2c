#include "engine/run/marks.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

namespace ponder::run {
namespace {

/// Control tokens that open a turn, in templates of Qwen and its kin, Llama 3, Gemma and others.
constexpr std::string_view kOpeners[] = {"<|im_start|>", "<|start_header_id|>", "<start_of_turn>",
                                         "<|start|>"};

struct Turn {
  std::int64_t start = 0;   ///< position of the token that opens it
  std::int64_t header = 0;  ///< position after its role and the line break
  std::string role;
};

/// The role and the line break behind the token that opens a turn; a turn without them has its
/// header end after that token.
Turn turn_at(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids,
             std::size_t start) {
  constexpr std::size_t kLongestHeader = 8;
  Turn turn;
  turn.start = static_cast<std::int64_t>(start);
  turn.header = turn.start + 1;
  std::string text;
  for (std::size_t i = start + 1; i < std::min(ids.size(), start + 1 + kLongestHeader); ++i) {
    if (!tokenizer.is_control(ids[i])) text += tokenizer.bytes_of(ids[i]);
    const std::size_t line = text.find('\n');
    if (line == std::string::npos) continue;
    turn.role = text.substr(0, line);
    turn.header = static_cast<std::int64_t>(i) + 1;
    break;
  }
  return turn;
}

std::vector<Turn> find_turns(const text::Tokenizer& tokenizer,
                             const std::vector<text::TokenId>& ids) {
  std::vector<Turn> turns;
  for (const std::string_view opener : kOpeners) {
    const text::TokenId id = tokenizer.special_id(opener);
    if (id < 0) continue;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == id) turns.push_back(turn_at(tokenizer, ids, i));
    if (!turns.empty()) break;
  }
  return turns;
}

/// Takes marks in the order they are offered.
class Chosen {
 public:
  explicit Chosen(std::int64_t size) : size_(size) {}
  void offer(std::int64_t at, bool anyway = false) {
    if (at < 1 || at >= size_ || marks_.size() >= kMostMarks) return;
    for (const std::int64_t mark : marks_)
      if (mark == at || (!anyway && std::abs(mark - at) < kMarkSpacing)) return;
    marks_.push_back(at);
  }
  std::vector<std::int64_t> sorted() && {
    std::sort(marks_.begin(), marks_.end());
    return std::move(marks_);
  }

 private:
  const std::int64_t size_;
  std::vector<std::int64_t> marks_;
};

bool is_system(const Turn& turn) {
  return turn.role == "system" || turn.role == "developer";
}
bool speaks_to_model(const Turn& turn) {
  return turn.role == "user" || turn.role == "tool" || turn.role == "ipython" ||
         turn.role == "function";
}

/// With tools the system turn, which ends at `end`, holds several pieces of the caller's: a tool
/// each, and the system text behind them, or before them and then instructions of the template's
/// come last.
void offer_tools(Chosen& chosen, const RenderedPrompt& prompt, std::int64_t end) {
  const auto begin_of = [&](std::size_t piece) {
    return static_cast<std::int64_t>(prompt.caller_text[piece]);
  };
  const auto end_of = [&](std::size_t piece) {
    return static_cast<std::int64_t>(prompt.caller_ends[piece]);
  };
  std::size_t pieces = 0;
  while (pieces < prompt.caller_text.size() && begin_of(pieces) < end)
    ++pieces;
  if (pieces == 0) return;
  std::size_t tool = pieces - 1;
  if (end - end_of(tool) < kMarkSpacing) {  // the system text ends the turn
    if (tool == 0) return;
    chosen.offer(begin_of(tool--));
  }
  chosen.offer(end_of(tool));
  if (tool > 0) chosen.offer(begin_of(tool));
}

}  // namespace

std::vector<std::int64_t> plan_marks(const text::Tokenizer& tokenizer,
                                     const RenderedPrompt& prompt) {
  const auto size = static_cast<std::int64_t>(prompt.ids.size());
  const std::vector<Turn> turns = find_turns(tokenizer, prompt.ids);
  Chosen chosen(size);
  if (turns.empty()) {
    chosen.offer(size - 1);
    return std::move(chosen).sorted();
  }
  // A prompt that ends within a turn's text (a rendered one may) has its end as any other does.
  constexpr std::int64_t kLongestOpener = 16;
  const std::int64_t header = turns.back().header;
  chosen.offer(size - header <= kLongestOpener ? std::min(header, size - 1) : size - 1, true);

  std::vector<std::int64_t> spoken;  // latest first
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn)
    if (speaks_to_model(*turn)) spoken.push_back(turn->start);
  if (!spoken.empty()) chosen.offer(spoken.front(), true);

  if (is_system(turns.front()) && turns.size() > 1) {
    const std::int64_t end = turns[1].start;
    chosen.offer(end);
    offer_tools(chosen, prompt, end);
  }
  for (const std::int64_t start : spoken)
    chosen.offer(start);
  return std::move(chosen).sorted();
}

bool is_mark(const std::vector<std::int64_t>& marks, std::int64_t position) {
  if (std::binary_search(marks.begin(), marks.end(), position)) return true;
  if (position == 0 || position % kGridSpacing != 0) return false;
  return std::none_of(marks.begin(), marks.end(), [&](std::int64_t mark) {
    return std::abs(mark - position) < kGridSpacing / 8;
  });
}

std::int64_t next_mark(const std::vector<std::int64_t>& marks, std::int64_t position,
                       std::int64_t size) {
  std::int64_t next = (position / kGridSpacing + 1) * kGridSpacing;
  const auto mark = std::upper_bound(marks.begin(), marks.end(), position);
  if (mark != marks.end()) next = std::min(next, *mark);
  return std::min(next, size);
}

}  // namespace ponder::run
