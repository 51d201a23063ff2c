#pragma once
// Which positions of a prompt are worth a saved state: those where another prompt may part from
// this one. In the order of their worth:
//   the end of the prompt, before what opens the thinking: effort none and medium, a thinking
//     block that the client drops and the next turn all go on from there;
//   the start of the last turn of the user's or a tool's, for an edited message;
//   the end of the system turn, for another conversation of the same client;
//   the start of the system text, behind the tools, for clients that change it;
//   the end of the last tool, for a tool that is appended, and its start, for one that is taken
//     away or changed;
//   the starts of the turns before.
// Turns are found by the control token that opens them, so that any template will do. A prompt
// without turns has its end. Pure.
#include <cstdint>
#include <vector>

#include "engine/run/prompt.h"

namespace ponder::run {

inline constexpr std::size_t kMostMarks = 7;
/// Two marks are so far apart at least, but for the last two.
inline constexpr std::int64_t kMarkSpacing = 16;
/// A long prompt is also saved at multiples of this, so that a cut prefill is not lost.
inline constexpr std::int64_t kGridSpacing = 4096;

/// Ascending, each from 1 to the prompt's length less one; the grid is not among them.
std::vector<std::int64_t> plan_marks(const text::Tokenizer& tokenizer,
                                     const RenderedPrompt& prompt);

/// The first of `marks` and of the grid after `position`, or `size` where none comes before it.
std::int64_t next_mark(const std::vector<std::int64_t>& marks, std::int64_t position,
                       std::int64_t size);
/// Whether a state is saved at `position`.
bool is_mark(const std::vector<std::int64_t>& marks, std::int64_t position);

}  // namespace ponder::run
