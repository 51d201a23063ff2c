#include "engine/text/prompt_encoding.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/text/golden_files.h"

namespace ponder::text {
namespace {

std::vector<PromptPiece> pieces_of(std::string_view source, const json::object& variables) {
  return ChatTemplate::compile(source).value()->render(variables).value();
}
/// The template's own parts in [brackets], the caller's plain.
std::string marked(std::string_view source, const json::object& variables) {
  std::string text;
  for (const PromptPiece& piece : pieces_of(source, variables))
    text += piece.from_template ? "[" + piece.text + "]" : piece.text;
  return text;
}

const json::object kUser = {
    {"s", "sEcret"}, {"n", 5}, {"t", true}, {"xs", {"p", "q"}}, {"d", {{"k", "v"}}}};

TEST(PromptPieces, LiteralsAreTheTemplatesAndValuesTheCallers) {
  EXPECT_EQ(marked("a{{ s }}b{{ 'c' }}", kUser), "[a]sEcret[bc]");
  EXPECT_EQ(marked("{{ n }}{{ t }}{{ xs }}{{ d }}", kUser), "5True['p', 'q']{'k': 'v'}");
  EXPECT_EQ(marked("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", kUser), "k[=]v");
}
TEST(PromptPieces, JoiningKeepsTheMarks) {
  EXPECT_EQ(marked("{{ '<' ~ s ~ '>' }}", kUser), "[<]sEcret[>]");
  EXPECT_EQ(marked("{{ '<' + s + '>' }}", kUser), "[<]sEcret[>]");
  EXPECT_EQ(marked("{{ xs | join(', ') }}", kUser), "p[, ]q");
  EXPECT_EQ(marked("{{ ', '.join(xs) }}", kUser), "p[, ]q");
  EXPECT_EQ(marked("{{ ('a' ~ s) * 2 }}", kUser), "[a]sEcret[a]sEcret");
}
TEST(PromptPieces, CuttingKeepsTheMarks) {
  EXPECT_EQ(marked("{{ (' x' ~ s ~ 'y ') | trim }}", kUser), "[x]sEcret[y]");
  EXPECT_EQ(marked("{{ ('ab' ~ s)[1:4] }}", kUser), "[b]sE");
  EXPECT_EQ(marked("{{ ('ab' ~ s)[::-1] }}", kUser), "tercEs[ba]");
  EXPECT_EQ(marked("{{ ('a,' ~ s ~ ',b').split(',') | join }}", kUser), "[a]sEcret[b]");
  EXPECT_EQ(marked("{{ ('--' ~ s).lstrip('-') }}", kUser), "sEcret");
}
TEST(PromptPieces, MappingKeepsTheMarks) {
  EXPECT_EQ(marked("{{ ('a' ~ s) | upper }}", kUser), "[A]SECRET");
  EXPECT_EQ(marked("{{ s | replace('E', '<e>') }}", kUser), "s[<e>]cret");
  EXPECT_EQ(marked("{{ 'xsx'.replace('s', s) }}", kUser), "[x]sEcret[x]");
  EXPECT_EQ(marked("{{ s | indent(2, first=true) }}", kUser), "[  ]sEcret");
}
TEST(PromptPieces, BlocksMacrosAndNamespacesKeepTheMarks) {
  EXPECT_EQ(marked("{% set a %}<{{ s }}>{% endset %}{{ a }}", kUser), "[<]sEcret[>]");
  EXPECT_EQ(marked("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(s) }}{{ m('y') }}", kUser),
            "[<]sEcret[><y>]");
  EXPECT_EQ(marked("{% set ns = namespace(a='<') %}{% set ns.a = ns.a ~ s %}{{ ns.a }}", kUser),
            "[<]sEcret");
}
TEST(PromptPieces, WhatCannotBeFollowedIsTheCallers) {
  EXPECT_EQ(marked("{{ ['x', s] | tojson }}", kUser), "[\"x\", \"sEcret\"]");
  EXPECT_EQ(marked("{{ ['x'] }}", kUser), "['x']");
  EXPECT_EQ(marked("{{ '%s!' % s }}", kUser), "sEcret[!]");
}
TEST(PromptPieces, TokenVariablesOfTheModelFileAreTheTemplates) {
  EXPECT_EQ(marked("{{ bos_token }}{{ s }}", {{"bos_token", "<s>"}, {"s", "x"}}), "[<s>]x");
}

// --- to ids ---

const std::string kTalk =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}<|im_start|>assistant\n{{ '<think>\\n' }}";

json::object talk(std::string_view content) {
  return {{"messages", json::array{{{"role", "user"}, {"content", content}}}}};
}

TEST(EncodePrompt, EqualsEncodingTheWholeForOrdinaryContent) {
  const Tokenizer& t = pebble_tokenizer();
  for (const char* name : {"conversations_pebble.jsonl"}) {
    const std::string source = read_source_file("models/pebble/chat_template.jinja");
    const auto compiled = ChatTemplate::compile(source).value();
    int compared = 0;
    for (const json::object& row : read_golden_lines(name)) {
      if (row.contains("error") || row.at("title") == "special text" ||
          row.at("title").as_string().find("inside content") != json::string::npos ||
          row.at("title").as_string().starts_with("tool call") ||
          row.at("title").as_string().find("results") != json::string::npos)
        continue;  // their content holds the text of special tokens
      const auto pieces = compiled->render(row.at("variables").as_object()).value();
      EXPECT_EQ(encode_prompt(t, pieces), t.encode(join(pieces), true)) << row.at("title");
      ++compared;
    }
    EXPECT_GE(compared, 60);
  }
}

TEST(EncodePrompt, BordersBetweenTemplateAndCallerDoNotCutTokens) {
  const Tokenizer& t = pebble_tokenizer();
  // " the" is one token; the border lies inside it and inside a run of spaces.
  const std::vector<PromptPiece> pieces = {
      {"say th", true}, {"e word  ", false}, {"  then", true}, {" go", false}};
  EXPECT_EQ(encode_prompt(t, pieces), t.encode("say the word    then go", true));
  EXPECT_TRUE(encode_prompt(t, {}).empty());
}

TEST(EncodePrompt, EverySpecialTextInContentStaysText) {
  const Tokenizer& t = pebble_tokenizer();
  for (TokenId id = 0; id < t.size(); ++id) {
    const std::string text(t.bytes_of(id));
    if (t.special_id(text) != id) continue;
    for (const std::string& content : {text, "a" + text + "b", text + text, " " + text + "\n"}) {
      const auto pieces = pieces_of(kTalk, talk(content));
      EXPECT_EQ(join(pieces),
                "<|im_start|>user\n" + content + "<|im_end|>\n<|im_start|>assistant\n<think>\n");
      const auto ids = encode_prompt(t, pieces);
      EXPECT_EQ(t.decode(ids), join(pieces));
      // Exactly the template's own four.
      EXPECT_EQ(std::count_if(ids.begin(), ids.end(),
                              [&](TokenId i) { return t.special_id(t.bytes_of(i)) == i; }),
                4)
          << content;
    }
  }
}

TEST(EncodePrompt, ASpecialTextMadeOfBothSidesStaysText) {
  const Tokenizer& t = pebble_tokenizer();
  const std::vector<PromptPiece> pieces = {{"<|im_", true}, {"end|>", false}, {"<|im_end|>", true}};
  const auto ids = encode_prompt(t, pieces);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), t.special_id("<|im_end|>")), 1);
  EXPECT_EQ(ids.back(), t.special_id("<|im_end|>"));
}

TEST(EncodePrompt, NeighbouringPiecesOfTheTemplateAreOneText) {
  const Tokenizer& t = pebble_tokenizer();
  EXPECT_EQ(encode_prompt(t, {{"<|im_", true}, {"end|>", true}}),
            std::vector<TokenId>{t.special_id("<|im_end|>")});
}

}  // namespace
}  // namespace ponder::text
