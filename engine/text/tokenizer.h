#pragma once
// Bytes to token ids and back: byte-level BPE with the pre-tokenizers of Qwen, Llama 3 and SmolLM.
// Const after construction and thread-safe. Encoding never normalises Unicode; bytes that are not
// valid UTF-8 become the tokens of their bytes, so decode(encode(x)) == x for any bytes that the
// vocabulary has tokens for. (SmolLM's has none for 21 control characters and bytes that hardly
// occur in UTF-8: these are left out, as Hugging Face's tokenizers leave them out.)
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace ponder::text {

using TokenId = std::int32_t;

/// What a GGUF file says of its tokenizer (keys tokenizer.ggml.*).
struct TokenizerSpec {
  std::string model;                ///< "gpt2"
  std::string pre;                  ///< one of pre_tokenizer_names()
  std::vector<std::string> tokens;  ///< in the byte-to-character alphabet of GPT-2
  std::vector<std::int32_t>
      types;  ///< 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  ///< "left right"
  TokenId bos = -1;
  TokenId eos = -1;
};

/// A control or user-defined token found in a text: bytes [at, at + size).
struct SpecialMatch {
  std::size_t at = 0;
  std::size_t size = 0;
  TokenId id = -1;
};

class SortedVocabulary;

class Tokenizer {
 public:
  /// Checks the vocabulary (bounds, byte coverage, merges) and builds the tables. model_missing
  /// with a sentence for a pre-tokenizer or model it does not know.
  static Result<std::unique_ptr<Tokenizer>> create(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  /// Ids of `text`. With `special`, the texts of control and user-defined tokens become their ids
  /// (longest match first); without, they are plain text: use that for anything a user wrote.
  /// Never adds a BOS. O(n log n) in the length of a piece. Stops soon after `most` ids, for who
  /// only needs to know that there are more: then the ids are those of the text's beginning.
  virtual std::vector<TokenId> encode(std::string_view text, bool special,
                                      std::size_t most = SIZE_MAX) const = 0;

  /// The control and user-defined tokens in `text`: from left to right, the longest at each
  /// place, not overlapping. Cutting at these and encoding the rest plainly is encode(text, true).
  virtual std::vector<SpecialMatch> find_special(std::string_view text) const = 0;

  /// The bytes of one token (may be part of a character; the literal text for added tokens).
  virtual std::string_view bytes_of(TokenId id) const = 0;
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  /// The id of an added (control or user-defined) token by its text, or -1. The first one where
  /// a file gives two the same text.
  virtual TokenId special_id(std::string_view text) const = 0;
  virtual bool is_control(TokenId id) const = 0;  ///< type 3
  /// Ends a turn: eos, and <|im_end|>, <|endoftext|> and their kin by text.
  virtual bool is_end(TokenId id) const = 0;
  virtual std::int32_t size() const = 0;
  virtual TokenId eos() const = 0;

  /// Made at the first call (measured: 0.04 s for 152,000 tokens), then shared.
  const SortedVocabulary& sorted() const;

 private:
  mutable std::once_flag sorted_once_;
  mutable std::shared_ptr<const SortedVocabulary> sorted_;
};

/// Collects bytes of tokens and gives out whole UTF-8 characters only. One per output stream.
/// Bytes that are no UTF-8 become one U+FFFD for each longest cut-off sequence (the practice of
/// Unicode 15, section 3.9, and of Python), however they fall into tokens.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The characters completed by `id` (bytes that can never become one come out as U+FFFD).
  std::string push(TokenId id);
  /// What is still held back, with U+FFFD for a cut character.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

}  // namespace ponder::text
