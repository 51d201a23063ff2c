#pragma once
// The filters that work on lists and dicts: the second half of the filter table.
#include <string_view>

#include "engine/text/jinja/callable.h"

namespace ponder::text::jinja {

/// nullptr for a name that is not known.
const Callable* find_sequence_filter(std::string_view name);

}  // namespace ponder::text::jinja
