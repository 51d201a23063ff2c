#include "clients/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ponder::cli {
namespace {
using Words = std::vector<std::string>;

// What the two commands below read.
Words words, files, rest;
std::string label, context;
std::optional<std::int64_t> number;
std::optional<double> seconds;
bool flag = false;

Action declare_talk(Arguments& arguments) {
  arguments.words("TEXT", words, 0, 0, "");
  arguments.option("--file", files, "");
  arguments.option("-l,--label,--name", label, "");
  arguments.option("--context", context, "", Arguments::Empty::allowed);
  arguments.option("--number", number, "");
  arguments.option("--wait-s", seconds, "");
  arguments.flag("--flag", flag, "");
  return [](Context&) { return 7; };
}
Action declare_one(Arguments& arguments) {
  arguments.words("ID", words, 1, 1, "");
  return [](Context&) { return 8; };
}
Action declare_pass(Arguments& arguments) {
  arguments.rest(rest);
  return [](Context&) { return 9; };
}
constexpr Command kCommands[] = {
    {"talk", "", declare_talk}, {"one", "", declare_one}, {"pass", "", declare_pass}};

class ArgumentsTest : public testing::Test {
 protected:
  ParsedLine parse(Words line) {
    words.clear(), files.clear(), rest.clear(), label.clear();
    number.reset(), seconds.reset(), flag = false;
    globals_ = {};
    std::vector<const char*> argv{"ponder"};
    for (const std::string& word : line)
      argv.push_back(word.c_str());
    return parse_line(static_cast<int>(argv.size()), argv.data(), kCommands, globals_);
  }
  Globals globals_;
};

TEST_F(ArgumentsTest, GlobalsStandBeforeOrAfterTheCommand) {
  for (const Words& line : {Words{"--home", "/h", "--no-start", "--json", "talk", "x"},
                            Words{"talk", "x", "--home", "/h", "--no-start", "--json"},
                            Words{"--json", "talk", "--home=/h", "x", "--no-start"}}) {
    ASSERT_TRUE(parse(line).action);
    EXPECT_EQ(globals_.home, "/h");
    EXPECT_TRUE(globals_.no_start);
    EXPECT_TRUE(globals_.json);
    EXPECT_EQ(words, Words{"x"});
  }
}

TEST_F(ArgumentsTest, TextIsTakenAsItIs) {
  for (const Words& text :
       {Words{"pass", "one", "talk"}, Words{"[[stub tokens=3]]"}, Words{"[a,b]", "{}"}, Words{"[]"},
        Words{"- dash and space"}, Words{"a,b", "c=d", ""}, Words{"\x01[x]"},
        Words{"%%", "'quoted'", "\"q\""}}) {
    Words line{"talk"};
    line.insert(line.end(), text.begin(), text.end());
    ASSERT_TRUE(parse(line).action) << text.front() << parse(line).error;
    EXPECT_EQ(words, text);
  }
  ASSERT_TRUE(parse({"talk", "--label", "[x,y]", "--", "-5", "--file"}).action);
  EXPECT_EQ(label, "[x,y]");
  EXPECT_EQ(words, (Words{"-5", "--file"}));
}

TEST_F(ArgumentsTest, ARepeatableOptionTakesOneValueEachTime) {
  ASSERT_TRUE(parse({"talk", "--file", "a", "text", "--file", "[b,c]", "more"}).action);
  EXPECT_EQ(files, (Words{"a", "[b,c]"}));
  EXPECT_EQ(words, (Words{"text", "more"}));
}

TEST_F(ArgumentsTest, NumbersAreReadStrictly) {
  ASSERT_TRUE(parse({"talk", "--number", "-12", "--wait-s", "0.5", "--flag"}).action);
  EXPECT_EQ(number, -12);
  EXPECT_EQ(seconds, 0.5);
  EXPECT_TRUE(flag);
  for (const char* wrong : {"x", "1x", "", "1.5", "99999999999999999999"})
    EXPECT_FALSE(parse({"talk", "--number", wrong}).error.empty()) << wrong;
  for (const char* wrong : {"x", "inf", "nan", "1s", " 1", "0x10", "1e999"})
    EXPECT_FALSE(parse({"talk", "--wait-s", wrong}).error.empty()) << wrong;
}

TEST_F(ArgumentsTest, WrongLinesAreErrorsThatStillKnowAboutJson) {
  for (const Words& line : {Words{}, Words{"frobnicate"}, Words{"talk", "--unknown"}, Words{"one"},
                            Words{"one", "a", "b"}, Words{"one", "a", "--label", "x"}})
    EXPECT_FALSE(parse(line).error.empty());
  EXPECT_EQ(parse({"--home", "/h", "--no-start", "frobnicate", "x"}).error,
            "there is no command \"frobnicate\"");
  EXPECT_EQ(parse({"--home", "/h"}).error, "a command is missing");
  for (const Words& line : {Words{"--frob"}, Words{"--frob=1", "talk"}, Words{"--frob", "bogus"}})
    EXPECT_EQ(parse(line).error, "there is no option --frob");
  EXPECT_EQ(parse({"--json", "-x"}).error, "there is no option -x");
  EXPECT_TRUE(parse({"one", "--json"}).wants_json);
  EXPECT_FALSE(parse({"one", "--", "--json"}).wants_json);
}

TEST_F(ArgumentsTest, AnEmptyHomeIsNotTheDefaultOne) {
  for (const Words& line :
       {Words{"--home", "", "talk"}, Words{"talk", "--home", ""}, Words{"talk", "--home="}}) {
    EXPECT_FALSE(parse(line).action);
    EXPECT_FALSE(parse(line).error.empty());
  }
}

TEST_F(ArgumentsTest, AnEmptyValueIsAnUnsetVariableAndRefused) {
  for (const Words& line : {Words{"talk", "--label", "", "x"}, Words{"talk", "--label=", "x"}}) {
    EXPECT_FALSE(parse(line).action);
    EXPECT_EQ(parse(line).error,
              "--label must not be empty: leave it out, or set the variable that it comes from");
  }
  EXPECT_THAT(parse({"talk", "--file", "a", "--file", ""}).error,
              testing::StartsWith("--file must not be empty"));
  ASSERT_TRUE(parse({"talk", "--context", "", "x"}).action) << "the same as none";
}

TEST_F(ArgumentsTest, TheRestGoesToTheOtherProgramInOrder) {
  ASSERT_TRUE(parse({"pass", "--port", "0", "--home", "/h", "install", "--ctx=4", "[m]"}).action);
  EXPECT_EQ(rest, (Words{"--port", "0", "install", "--ctx=4", "[m]"}));
  EXPECT_EQ(globals_.home, "/h");
}

TEST_F(ArgumentsTest, HelpAndVersionAreAnswers) {
  EXPECT_THAT(parse({"--help"}).output, testing::HasSubstr("Exit codes"));
  EXPECT_THAT(parse({"talk", "--help"}).output, testing::HasSubstr("--wait-s"));
  EXPECT_THAT(parse({"talk", "--help"}).output,
              testing::HasSubstr("Usage: ponder talk [OPTIONS] [TEXT...]"));
  EXPECT_EQ(parse({"--version"}).output, "ponder " PONDER_VERSION "\n");
}

}  // namespace
}  // namespace ponder::cli
