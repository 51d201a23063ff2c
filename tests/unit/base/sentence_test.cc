#include "engine/base/sentence.h"

#include <gtest/gtest.h>

namespace ponder {
namespace {

std::string joined(std::string message, std::string hint) {
  return in_one_sentence(Error{ErrorCode::internal, std::move(message), std::move(hint)});
}

TEST(Sentence, JoinsMessageAndHintWithoutAPeriodAtTheEnd) {
  EXPECT_EQ(joined("The window does not fit.", "Use --ctx 32768."),
            "The window does not fit; use --ctx 32768");
  EXPECT_EQ(joined("the disk is full", "free some"), "the disk is full; free some");
  EXPECT_EQ(joined("m.gguf is broken.", ""), "m.gguf is broken");
  EXPECT_EQ(joined("", "GGUF files only."), "GGUF files only");
}

}  // namespace
}  // namespace ponder
