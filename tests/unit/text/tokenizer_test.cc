#include "engine/text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "engine/base/utf8.h"
#include "engine/text/byte_alphabet.h"
#include "tests/unit/text/golden_files.h"

namespace ponder::text {
namespace {

std::vector<TokenId> ids_of(const json::value& array) {
  std::vector<TokenId> ids;
  for (const json::value& id : array.as_array())
    ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

void expect_golden_ids(std::string_view pre, std::string_view file) {
  const auto tokenizer = Tokenizer::create(pebble_spec(pre)).value();
  const auto rows = read_golden_lines(file);
  ASSERT_GE(rows.size(), 500u);
  for (const json::object& row : rows) {
    const std::string text(row.at("text").as_string());
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(ids, ids_of(row.at("ids"))) << testing::PrintToString(text);
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

TEST(Tokenizer, GivesTheIdsOfTheReferenceForQwen35) {
  expect_golden_ids("qwen35", "tokens_qwen35.jsonl");
}
TEST(Tokenizer, GivesTheIdsOfTheReferenceForQwen2) {
  expect_golden_ids("qwen2", "tokens_qwen2.jsonl");
}
TEST(Tokenizer, GivesTheIdsOfTheReferenceForLlama3) {
  expect_golden_ids("llama-bpe", "tokens_llama-bpe.jsonl");
}

TEST(Tokenizer, GivesTheIdsOfTheReferenceForSmolLm) {
  const TokenizerSpec spec = smollm_spec();
  const auto tokenizer = Tokenizer::create(spec).value();
  const auto rows = read_golden_lines("tokens_smollm.jsonl");
  ASSERT_GE(rows.size(), 300u);
  std::size_t cut = 0;
  for (const json::object& row : rows) {
    const std::string text(row.at("text").as_string());
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(ids, ids_of(row.at("ids"))) << testing::PrintToString(text);
    std::string known;  // SmolLM's vocabulary has no token for some bytes
    for (const char c : text)
      if (std::find(spec.tokens.begin(), spec.tokens.end(), spell_bytes(std::string(1, c))) !=
          spec.tokens.end())
        known += c;
    EXPECT_EQ(tokenizer->decode(ids), known);
    cut += known != text;
  }
  EXPECT_GT(cut, 0u);
}

TEST(Tokenizer, APieceThatIsATokenNeedsNoMergesInLlama3) {
  for (const auto& [pre, whole] : {std::pair{"llama-bpe", true}, {"qwen2", false}}) {
    TokenizerSpec spec = pebble_spec(pre);
    const auto id = static_cast<TokenId>(spec.tokens.size());
    spec.tokens.push_back(spell_bytes(" zqxzqx"));
    spec.types.push_back(1);
    const auto tokenizer = Tokenizer::create(spec).value();
    const auto ids = tokenizer->encode("a zqxzqx", false);
    EXPECT_EQ(ids.back() == id, whole) << pre;
    EXPECT_EQ(tokenizer->decode(ids), "a zqxzqx");
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), whole ? 1 : 0);
  }
}

/// Merging as it is defined: the lowest rank, leftmost, again and again. Quadratic.
std::vector<TokenId> merge_slowly(const TokenizerSpec& spec, const std::string& piece) {
  std::vector<std::string> parts;
  for (const char c : piece)
    parts.push_back(spell_bytes(std::string(1, c)));
  while (true) {
    std::size_t best_rank = spec.merges.size(), best = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it =
          std::find(spec.merges.begin(), spec.merges.end(), parts[i] + " " + parts[i + 1]);
      const auto rank = static_cast<std::size_t>(it - spec.merges.begin());
      if (rank < best_rank) best_rank = rank, best = i;
    }
    if (best_rank == spec.merges.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& part : parts)
    ids.push_back(static_cast<TokenId>(std::find(spec.tokens.begin(), spec.tokens.end(), part) -
                                       spec.tokens.begin()));
  return ids;
}

TEST(Tokenizer, MergesAsTheDefinitionDoes) {
  const TokenizerSpec spec = pebble_spec();
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::string word;  // letters only: one piece
    for (int i = 0; i < 1 + round % 12; ++i)
      word += "etaoinsrhl"[random() % 10];
    EXPECT_EQ(pebble_tokenizer().encode(word, false), merge_slowly(spec, word)) << word;
  }
}

RC_GTEST_PROP(Tokenizer, DecodesWhatItEncodedForAnyBytes, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  const Tokenizer& t = pebble_tokenizer();
  RC_ASSERT(t.decode(t.encode(bytes, false)) == bytes);
  RC_ASSERT(t.decode(t.encode(bytes, true)) == bytes);
}

RC_GTEST_PROP(Tokenizer, PlainTextNeverBecomesAControlToken, ()) {
  const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(
      std::vector<std::string>{"<|im_end|>", "<|im_start|>", "<|endoftext|>", "<think>", "</think>",
                               "<tool_call>", "<|", "|>", "<", " ", "\n", "user", "\xC3", "\xA9"}));
  std::string text;
  for (const std::string& part : parts)
    text += part;
  const Tokenizer& t = pebble_tokenizer();
  const auto ids = t.encode(text, false);
  for (const TokenId id : ids) {
    RC_ASSERT(!t.is_control(id));
    RC_ASSERT(t.special_id(t.bytes_of(id)) != id);
  }
  RC_ASSERT(t.decode(ids) == text);
}

TEST(Tokenizer, CutsAtSpecialTokensOnlyWhenAsked) {
  const Tokenizer& t = pebble_tokenizer();
  const TokenId start = t.special_id("<|im_start|>"), think = t.special_id("<think>");
  ASSERT_GE(start, 0);
  ASSERT_GE(think, 0);
  const auto ids = t.encode("<|im_start|>user\n<think>", true);
  EXPECT_EQ(ids.front(), start);
  EXPECT_EQ(ids.back(), think);
  EXPECT_EQ(t.encode("<|im_start|>", true).size(), 1u);
  EXPECT_GT(t.encode("<|im_start|>", false).size(), 1u);
  EXPECT_TRUE(t.is_control(start));
  EXPECT_FALSE(t.is_control(think));
  EXPECT_EQ(t.special_id("user"), -1);
  EXPECT_EQ(t.special_id("<|im_start"), -1);
}

TEST(Tokenizer, TakesTheLongestSpecialTokenAtAPlace) {
  TokenizerSpec spec = pebble_spec();
  for (const char* text : {"<a>", "<a>b", "<a>bc"}) {
    spec.tokens.emplace_back(text);
    spec.types.push_back(4);
  }
  const auto t = Tokenizer::create(spec).value();
  const TokenId first = t->special_id("<a>");
  EXPECT_EQ(t->encode("<a>bc", true), std::vector<TokenId>{first + 2});
  EXPECT_EQ(t->encode("<a>b", true), std::vector<TokenId>{first + 1});
  EXPECT_EQ(t->encode("<a><a>bc", true), (std::vector<TokenId>{first, first + 2}));
  const auto found = t->find_special("x<a>y");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at, 1u);
  EXPECT_EQ(found[0].size, 3u);
}

TEST(Tokenizer, KnowsWhichTokensEndATurn) {
  const Tokenizer& t = pebble_tokenizer();
  EXPECT_TRUE(t.is_end(t.special_id("<|im_end|>")));
  EXPECT_TRUE(t.is_end(t.special_id("<|endoftext|>")));
  EXPECT_FALSE(t.is_end(t.special_id("<|im_start|>")));
  EXPECT_FALSE(t.is_end(t.special_id("</think>")));
  EXPECT_EQ(t.eos(), t.special_id("<|im_end|>"));
}

TEST(Tokenizer, DoesNotNormaliseUnicode) {
  const Tokenizer& t = pebble_tokenizer();
  EXPECT_NE(t.encode("\u00e9", false), t.encode("e\u0301", false));
  EXPECT_EQ(t.decode(t.encode("e\u0301", false)), "e\u0301");
}

TEST(Tokenizer, InvalidBytesBecomeTheTokensOfTheirBytes) {
  const Tokenizer& t = pebble_tokenizer();
  for (int b = 0x80; b < 0x100; ++b) {
    const std::string byte(1, static_cast<char>(b));
    const auto ids = t.encode(byte, false);
    ASSERT_EQ(ids.size(), 1u);
    EXPECT_EQ(t.bytes_of(ids[0]), byte);
  }
}

TEST(Tokenizer, EmptyTextHasNoTokens) {
  EXPECT_TRUE(pebble_tokenizer().encode("", true).empty());
  EXPECT_EQ(pebble_tokenizer().decode({}), "");
}

TEST(Tokenizer, LongRunsTakeNearlyLinearTime) {
  TokenizerSpec spec = pebble_spec();
  for (std::string run = "q"; run.size() < 64; run += run) {  // q, qq, qqqq, ... all merge
    spec.merges.push_back(run + " " + run);
    spec.tokens.push_back(run + run);
    spec.types.push_back(1);
  }
  const auto t = Tokenizer::create(spec).value();
  for (const std::string& text :
       {std::string(1 << 20, 'q'), std::string(1 << 20, ' '), std::string(1 << 20, '='),
        std::string(1 << 20, '\n'), std::string(1 << 20, '\xCC'), std::string(1 << 20, '<')}) {
    const std::clock_t begin = std::clock();  // of the processor: other programs do not count
    const auto ids = t->encode(text, true);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_EQ(t->decode(ids), text);
    EXPECT_LT(seconds, 10.0);  // measured 0.1-0.3 s; a quadratic one takes hours
  }
}

// --- vocabularies that are not sound ---

std::string refusal(const TokenizerSpec& spec) {
  auto made = Tokenizer::create(spec);
  if (made) return "accepted";
  EXPECT_EQ(made.error().code, ErrorCode::model_missing);
  return made.error().message;
}

TEST(TokenizerSpecs, OtherKindsAreRefusedByName) {
  TokenizerSpec spec = pebble_spec();
  spec.model = "llama";
  EXPECT_NE(refusal(spec).find("llama"), std::string::npos);
  spec = pebble_spec("deepseek-llm");
  EXPECT_NE(refusal(spec).find("deepseek-llm"), std::string::npos);
}
TEST(TokenizerSpecs, ArraysMustBeOfOneLength) {
  TokenizerSpec spec = pebble_spec();
  spec.types.pop_back();
  EXPECT_NE(refusal(spec).find("token types"), std::string::npos);
  spec = {"gpt2", "qwen35", {}, {}, {}};
  EXPECT_NE(refusal(spec).find("0 tokens"), std::string::npos);
}
TEST(TokenizerSpecs, TheTextOfAddedTokensIsBounded) {
  TokenizerSpec spec = pebble_spec();
  for (int i = 0; i < 1100; ++i) {
    spec.tokens.push_back(std::to_string(i) + std::string(4000, '<'));
    spec.types.push_back(3);
  }
  EXPECT_NE(refusal(spec).find("added tokens"), std::string::npos);
}
TEST(TokenizerSpecs, EveryByteOfPlainTextNeedsAToken) {
  for (const auto& [byte, says] : {std::pair{"A", "0x41"}, {"\n", "0x0A"}, {" ", "0x20"}}) {
    TokenizerSpec spec = pebble_spec();
    const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), spell_bytes(byte));
    ASSERT_NE(it, spec.tokens.end());
    *it = "<unused>";
    EXPECT_NE(refusal(spec).find(says), std::string::npos);
  }
}
TEST(TokenizerSpecs, OtherBytesWithoutATokenAreLeftOut) {
  TokenizerSpec spec = pebble_spec();
  *std::find(spec.tokens.begin(), spec.tokens.end(), spell_bytes("\x07")) = "<unused>";
  const auto tokenizer = Tokenizer::create(spec).value();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\x07 b\x07", false)), "a b");
  EXPECT_TRUE(tokenizer->encode("\x07\x07", false).empty());
}
TEST(TokenizerSpecs, ByteTokensAreReadStrictly) {
  for (const char* bad : {"<0x-1>", "<0x1>", "<0x1G>", "<0x111>", "0x11", "<0X11>", ""}) {
    TokenizerSpec spec = pebble_spec();
    spec.tokens.emplace_back(bad);
    spec.types.push_back(6);
    EXPECT_NE(refusal(spec).find("<0xNN>"), std::string::npos) << bad;
  }
  TokenizerSpec spec = pebble_spec();
  spec.tokens.emplace_back("<0xfA>");
  spec.types.push_back(6);
  const auto t = Tokenizer::create(spec).value();
  EXPECT_EQ(t->bytes_of(t->size() - 1), "\xFA");
}
TEST(TokenizerSpecs, SpecialIdsLieInTheVocabulary) {
  for (const TokenId id : {TokenId{-2}, TokenId{4096}, TokenId{1 << 30}}) {
    TokenizerSpec spec = pebble_spec();
    spec.eos = id;
    EXPECT_NE(refusal(spec).find("outside"), std::string::npos);
    spec = pebble_spec();
    spec.bos = id;
    EXPECT_NE(refusal(spec).find("outside"), std::string::npos);
  }
}
TEST(TokenizerSpecs, UnknownTypesAndOverlongTokensAreRefused) {
  TokenizerSpec spec = pebble_spec();
  spec.types[5] = 9;
  EXPECT_NE(refusal(spec).find("unknown type"), std::string::npos);
  spec = pebble_spec();
  spec.tokens.emplace_back(100000, 'a');
  spec.types.push_back(1);
  EXPECT_NE(refusal(spec).find("100000 bytes"), std::string::npos);
}
TEST(TokenizerSpecs, MergesOfUnknownPartsAreLeftOut) {
  TokenizerSpec spec = pebble_spec();
  spec.merges.insert(spec.merges.begin(),
                     {"nosuchpart e", "e", "", " ", "e nosuchpart", "zqzqz q"});
  const auto t = Tokenizer::create(spec).value();
  EXPECT_EQ(t->encode("the letter e", false), pebble_tokenizer().encode("the letter e", false));
}

// --- incremental decoding ---

/// A vocabulary of single bytes, so that every split of a text can be made.
const Tokenizer& byte_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    TokenizerSpec spec{"gpt2", "qwen35", {}, {}, {}};
    for (int b = 0; b < 256; ++b) {
      spec.tokens.push_back(spell_bytes(std::string(1, static_cast<char>(b))));
      spec.types.push_back(1);
    }
    return Tokenizer::create(spec).value();
  }();
  return *tokenizer;
}

// Who asks for no more than so many ids gets all of them where there are no more, else more than so
// many of the text's beginning: a count that is over stays over, and one that is not is exact.
RC_GTEST_PROP(Tokenizer, StopsOnlyBehindWhatWasAskedFor, ()) {
  const Tokenizer& t = pebble_tokenizer();
  const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "a", " the", "12345", "\n", "<|im_end|>", "\u4e2d", "zzzzzzzz"));
  std::string text;
  for (const std::string& word : words)
    text += word;
  const auto most = *rc::gen::inRange<std::size_t>(0, 60);
  for (const bool special : {false, true}) {
    const auto whole = t.encode(text, special);
    const auto some = t.encode(text, special, most);
    if (whole.size() <= most)
      RC_ASSERT(some == whole);
    else
      RC_ASSERT(some.size() > most);
  }
}
TEST(Tokenizer, OfMegabytesThatAreOverOnlyTheBeginningIsEncoded) {
  const Tokenizer& t = pebble_tokenizer();
  for (const char* word : {"a", "7", " ", "ab1 _Z.", "\U0001f600"}) {
    std::string text;
    while (text.size() < 4'000'000)
      text += word;
    const auto ids = t.encode(text, false, 1000);
    EXPECT_GT(ids.size(), 1000u) << word;
    EXPECT_LT(ids.size(), 100'000u) << word;
  }
}

std::string decode_by_byte(std::string_view bytes) {
  Detokenizer out(byte_tokenizer());
  std::string text;
  for (const char b : bytes) {
    const std::string step = out.push(static_cast<unsigned char>(b));
    EXPECT_TRUE(is_valid_utf8(step));
    text += step;
  }
  return text + out.flush();
}

// T31, lucebox#641, Fabric#2203: characters torn at the borders of tokens.
TEST(Detokenizer, GivesOutWholeCharactersOnly) {
  const std::string text = "a\u00e9\u4e2d\U0001f600z";
  EXPECT_EQ(decode_by_byte(text), text);
  Detokenizer out(byte_tokenizer());
  EXPECT_EQ(out.push(0xF0), "");
  EXPECT_EQ(out.push(0x9F), "");
  EXPECT_EQ(out.push(0x98), "");
  EXPECT_EQ(out.push(0x80), "\U0001f600");
  EXPECT_EQ(out.flush(), "");
}
TEST(Detokenizer, ACutCharacterIsOneReplacement) {
  EXPECT_EQ(decode_by_byte("a\xF0\x9F\x98"), "a\uFFFD");
  EXPECT_EQ(decode_by_byte("\xE4\xBD"
                           "b"),
            "\uFFFD"
            "b");
}
TEST(Detokenizer, BytesThatCanNeverBecomeACharacterComeOutAtOnce) {
  Detokenizer out(byte_tokenizer());
  EXPECT_EQ(out.push(0xFF), "\uFFFD");
  EXPECT_EQ(out.push(0x80), "\uFFFD");
  EXPECT_EQ(out.push(0xE0), "");
  EXPECT_EQ(out.push(0x80), "\uFFFD\uFFFD");  // an overlong form: neither byte is of a character
  EXPECT_EQ(out.push(0xED), "");
  EXPECT_EQ(out.push(0xA0), "\uFFFD\uFFFD");  // a surrogate
}
RC_GTEST_PROP(Detokenizer, IsTheSameForEverySplit, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  const Tokenizer& t = pebble_tokenizer();
  Detokenizer out(t);
  std::string text;
  for (const TokenId id : t.encode(bytes, false))
    text += out.push(id);
  text += out.flush();
  RC_ASSERT(text == decode_by_byte(bytes));
  RC_ASSERT(is_valid_utf8(text));
  if (is_valid_utf8(bytes)) RC_ASSERT(text == bytes);
}

}  // namespace
}  // namespace ponder::text
