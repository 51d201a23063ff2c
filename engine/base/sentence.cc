#include "engine/base/sentence.h"

#include <cctype>
#include <string_view>

namespace ponder {
namespace {

std::string_view without_end(std::string_view text) {
  while (!text.empty() && (text.back() == '.' || text.back() == ' ' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}
}  // namespace

std::string in_one_sentence(const Error& error) {
  std::string out(without_end(error.message));
  std::string hint(without_end(error.hint));
  if (hint.empty()) return out;
  if (hint.size() > 1 && std::islower(static_cast<unsigned char>(hint[1])))
    hint[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(hint[0])));
  return out.empty() ? hint : out + "; " + hint;
}

}  // namespace ponder
