#include "engine/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "engine/base/check.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/byte_pair_encoding.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/special_tokens.h"

namespace ponder::text {
namespace {

// Bounds of a vocabulary. The largest known ones have 262,144 tokens of at most 256 bytes or so.
constexpr std::size_t kMaxTokens = std::size_t{1} << 21;
constexpr std::size_t kMaxMerges = std::size_t{1} << 22;
constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kMaxAddedBytes = std::size_t{1} << 22;  // their table takes 32 times as much

enum TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Tokens that end a turn, by their text, when a file marks them as added tokens.
constexpr std::string_view kEndTexts[] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>",  "<|end_of_text|>", "<|eom_id|>",  "<|end|>",
    "<|end_of_turn|>", "</s>",          "<|fim_pad|>", "<|repo_name|>",   "<|file_sep|>"};

tl::unexpected<Error> unusable(std::string message) {
  return fail(ErrorCode::model_missing, "the model's tokenizer cannot be used: " + message,
              "Use a GGUF file of Qwen, Llama 3 or SmolLM2 with its vocabulary.");
}

/// The byte of `<0xNN>`, strictly: two hexadecimal digits and nothing else.
std::optional<unsigned char> byte_token_value(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  const int high = digit(text[3]), low = digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

class BytePairTokenizer final : public Tokenizer {
 public:
  struct Tables {
    std::string bytes;                 // of all tokens, one after the other
    std::vector<std::size_t> offsets;  // size() + 1 of them
    std::size_t longest = 1;           // bytes of a token
    std::vector<std::int32_t> types;
    std::vector<TokenId> ends;  // sorted
    SpecialTokens special;
    PieceMatcher matcher;
    std::unordered_map<std::string, TokenId> whole;  // pieces that are a token without any merge
    TokenId eos;
  };
  BytePairTokenizer(Tables tables, BytePairEncoding merges)
      : tables_(std::move(tables)), merges_(std::move(merges)) {}

  std::vector<TokenId> encode(std::string_view text, bool special,
                              std::size_t most) const override {
    // No token has more than `longest` bytes, so that of megabytes the beginning tells enough.
    if (text.size() / tables_.longest > most) {
      std::vector<TokenId> ids =
          encode_up_to(text.substr(0, (most + 1) * tables_.longest), special, most);
      if (ids.size() > most) return ids;  // else the vocabulary leaves some bytes out
    }
    return encode_up_to(text, special, most);
  }

  std::vector<SpecialMatch> find_special(std::string_view text) const override {
    return tables_.special.matches(text);
  }

  std::string_view bytes_of(TokenId id) const override {
    CHECK_MSG(is_id(id), fmt::format("token {} of a vocabulary of {}", id, size()));
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(tables_.bytes)
        .substr(tables_.offsets[i], tables_.offsets[i + 1] - tables_.offsets[i]);
  }

  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids)
      text += bytes_of(id);
    return text;
  }

  TokenId special_id(std::string_view text) const override { return tables_.special.find(text); }
  bool is_control(TokenId id) const override {
    return is_id(id) && tables_.types[static_cast<std::size_t>(id)] == kControl;
  }
  bool is_end(TokenId id) const override {
    return std::binary_search(tables_.ends.begin(), tables_.ends.end(), id);
  }
  std::int32_t size() const override { return static_cast<std::int32_t>(tables_.types.size()); }
  TokenId eos() const override { return tables_.eos; }

 private:
  bool is_id(TokenId id) const { return id >= 0 && id < size(); }

  std::vector<TokenId> encode_up_to(std::string_view text, bool special, std::size_t most) const {
    std::vector<TokenId> ids;
    ids.reserve(std::min(text.size() / 4, most) + 1);
    std::size_t at = 0;
    if (special) {
      for (const SpecialMatch& match : find_special(text)) {
        if (ids.size() > most) return ids;
        encode_plain(text.substr(at, match.at - at), most, ids);
        ids.push_back(match.id);
        at = match.at + match.size;
      }
    }
    encode_plain(text.substr(at), most, ids);
    return ids;
  }

  void encode_plain(std::string_view text, std::size_t most, std::vector<TokenId>& ids) const {
    for (std::size_t at = 0; at < text.size() && ids.size() <= most;) {
      const std::size_t n = tables_.matcher(text, at);
      CHECK(n > 0 && n <= text.size() - at);
      encode_piece(text.substr(at, n), ids);
      at += n;
    }
  }

  void encode_piece(std::string_view piece, std::vector<TokenId>& ids) const {
    if (!tables_.whole.empty()) {
      const auto whole = tables_.whole.find(std::string(piece));
      if (whole != tables_.whole.end()) return ids.push_back(whole->second);
    }
    merges_.encode(piece, ids);
  }

  Tables tables_;
  BytePairEncoding merges_;
};

Result<void> check_sizes(const TokenizerSpec& spec) {
  if (spec.model != "gpt2")
    return unusable(fmt::format("its kind is \"{}\"; only byte-level BPE (\"gpt2\") is known",
                                spec.model.substr(0, 80)));
  if (!find_pre_tokenizer(spec.pre))
    return unusable(fmt::format("its pre-tokenizer is \"{}\"; known are {}", spec.pre.substr(0, 80),
                                pre_tokenizer_names()));
  if (spec.tokens.empty() || spec.tokens.size() > kMaxTokens)
    return unusable(fmt::format("{} tokens; 1 to {} are accepted", spec.tokens.size(), kMaxTokens));
  if (spec.types.size() != spec.tokens.size())
    return unusable(
        fmt::format("{} tokens but {} token types", spec.tokens.size(), spec.types.size()));
  if (spec.merges.size() > kMaxMerges)
    return unusable(
        fmt::format("{} merges; at most {} are accepted", spec.merges.size(), kMaxMerges));
  const auto in_vocabulary = [&](TokenId id) {
    return id >= -1 && id < static_cast<TokenId>(spec.tokens.size());
  };
  if (!in_vocabulary(spec.bos) || !in_vocabulary(spec.eos))
    return unusable(fmt::format("its bos ({}) or eos ({}) is outside the vocabulary of {}",
                                spec.bos, spec.eos, spec.tokens.size()));
  return {};
}

/// The bytes that a token stands for in decoded text.
Result<std::string> token_bytes(const std::string& token, std::int32_t type, std::size_t id) {
  if (token.size() > kMaxTokenBytes)
    return unusable(fmt::format("token {} has {} bytes; at most {} are accepted", id, token.size(),
                                kMaxTokenBytes));
  switch (type) {
    case kNormal:
      return spelled_bytes(token).value_or(token);
    case kByte: {
      const auto byte = byte_token_value(token);
      if (!byte) return unusable(fmt::format("byte token {} does not read <0xNN>", id));
      return std::string(1, static_cast<char>(*byte));
    }
    case kUnknown:
    case kControl:
    case kUserDefined:
    case kUnused:
      return token;
    default:
      return unusable(fmt::format("token {} is of the unknown type {}", id, type));
  }
}

/// Ids of the normal tokens by their text in the alphabet: what merging may produce. Added tokens
/// are not among them, so plain text never becomes one.
using Vocabulary = std::unordered_map<std::string_view, TokenId>;

Vocabulary normal_tokens(const TokenizerSpec& spec) {
  Vocabulary vocabulary;
  vocabulary.reserve(spec.tokens.size());
  for (std::size_t i = 0; i < spec.tokens.size(); ++i)
    if (spec.types[i] == kNormal) vocabulary.try_emplace(spec.tokens[i], static_cast<TokenId>(i));
  return vocabulary;
}

Result<std::array<TokenId, 256>> byte_ids(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  std::array<TokenId, 256> ids;
  ids.fill(-1);
  for (std::size_t i = 0; i < spec.tokens.size(); ++i)
    if (spec.types[i] == kByte)
      if (const auto byte = byte_token_value(spec.tokens[i])) ids[*byte] = static_cast<TokenId>(i);
  for (int b = 0; b < 256; ++b) {
    const auto it = vocabulary.find(spell_bytes(std::string(1, static_cast<char>(b))));
    TokenId& id = ids[static_cast<std::size_t>(b)];
    if (it != vocabulary.end()) id = it->second;
    const bool is_text = (b >= ' ' && b <= '~') || b == '\n';
    if (id < 0 && is_text) return unusable(fmt::format("it has no token for the byte 0x{:02X}", b));
  }
  return ids;
}

/// Merges whose parts or whole are no tokens are left out: nothing could come of them.
BytePairEncoding merge_table(const TokenizerSpec& spec, const Vocabulary& vocabulary,
                             const std::array<TokenId, 256>& bytes) {
  BytePairEncoding table(bytes);
  table.reserve(spec.merges.size());
  std::string whole;
  for (const std::string& merge : spec.merges) {
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string::npos) continue;
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right = std::string_view(merge).substr(space + 1);
    whole.assign(left).append(right);
    const auto a = vocabulary.find(left), b = vocabulary.find(right), ab = vocabulary.find(whole);
    if (a == vocabulary.end() || b == vocabulary.end() || ab == vocabulary.end()) continue;
    table.add_merge(a->second, b->second, ab->second);
  }
  return table;
}

/// Llama 3's rule: a piece that is a token becomes that token, whatever merging would make of it.
/// These are the tokens for which it makes a difference.
std::unordered_map<std::string, TokenId> unmergeable(const TokenizerSpec& spec,
                                                     const BytePairEncoding& merges) {
  std::unordered_map<std::string, TokenId> out;
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] != kNormal) continue;
    const auto bytes = spelled_bytes(spec.tokens[i]);
    if (!bytes || bytes->empty()) continue;
    ids.clear();
    merges.encode(*bytes, ids);
    if (ids.size() != 1) out.try_emplace(*bytes, static_cast<TokenId>(i));
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(TokenizerSpec spec) {
  TRY_VOID(check_sizes(spec));
  BytePairTokenizer::Tables tables;
  tables.matcher = find_pre_tokenizer(spec.pre);
  tables.eos = spec.eos;
  tables.offsets.push_back(0);
  std::size_t added_bytes = 0;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& token = spec.tokens[i];
    const std::int32_t type = spec.types[i];
    const auto id = static_cast<TokenId>(i);
    TRY(const std::string bytes, token_bytes(token, type, i));
    tables.bytes += bytes;
    tables.offsets.push_back(tables.bytes.size());
    tables.longest = std::max(tables.longest, bytes.size());
    const bool added = type == kControl || type == kUserDefined;
    if (added && (added_bytes += token.size()) > kMaxAddedBytes)
      return unusable(
          fmt::format("its added tokens have more than {} bytes of text", kMaxAddedBytes));
    if (added) tables.special.add(token, id);
    const bool ends = added && std::count(std::begin(kEndTexts), std::end(kEndTexts), token) > 0;
    if (ends || id == spec.eos) tables.ends.push_back(id);
  }
  const Vocabulary vocabulary = normal_tokens(spec);
  TRY(const auto bytes, byte_ids(spec, vocabulary));
  BytePairEncoding merges = merge_table(spec, vocabulary, bytes);
  if (spec.pre == "llama-bpe") tables.whole = unmergeable(spec, merges);
  tables.types = std::move(spec.types);
  return std::make_unique<BytePairTokenizer>(std::move(tables), std::move(merges));
}

}  // namespace ponder::text
