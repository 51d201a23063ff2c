#pragma once
// The escapes of a string literal, as Python's unicode-escape codec reads them. Pure.
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace ponder::text::jinja {

/// The text between the quotes, escapes resolved; the error is a sentence.
tl::expected<std::string, std::string> unescape(std::string_view literal);

}  // namespace ponder::text::jinja
