// Text to token ids and back: the built-in byte tokenizer, or a SentencePiece model such as
// Gemma's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace g2::tokenizer {

struct SpecialIds {
  std::int32_t pad = 0;
  std::int32_t eos = 1;
  std::int32_t bos = 2;
  std::int32_t unk = 3;
};

// Immutable after construction: any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;  // "byte", or the model's path
  virtual std::int64_t vocab_size() const = 0;
  virtual SpecialIds special() const = 0;
  // Differs between vocabularies that give different ids; kept in token files and checkpoints.
  virtual std::uint64_t vocabulary_hash() const = 0;

  // Appends the ids of `text`, which must be valid UTF-8. Adds no BOS or EOS. Control pieces and
  // turn markers written out in the text stay text: their ids appear only through
  // encode_with_special().
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;

  // The same, but every special piece written out in the text ("<bos>", "<start_of_turn>") becomes
  // its id.
  virtual void encode_with_special(std::string_view text, std::vector<std::int32_t>& ids) const = 0;

  // The bytes a token stands for ("" for control ids); not always whole characters.
  virtual std::string token_bytes(std::int32_t id) const = 0;
  // The piece as the vocabulary spells it ("▁the", "<0x0A>"), for people.
  virtual std::string piece(std::int32_t id) const = 0;
  virtual std::optional<std::int32_t> piece_id(std::string_view piece) const = 0;
};

// "byte", a SentencePiece model file, or a folder that holds tokenizer.model. Throws UsageError
// when there is none there, DataError when the model breaks Gemma's rules (BOS, EOS and PAD must
// exist).
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec);

// A document's tokens: BOS, the text's, EOS. A text that already starts with the BOS piece written
// out is still text.
void encode_document(const Tokenizer& tokenizer,
                     std::string_view text,
                     std::vector<std::int32_t>& ids);

// Text of the ids; invalid UTF-8 shows as U+FFFD.
std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

// Decodes one token at a time, holding back the bytes of an unfinished character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(std::int32_t id);
  std::string finish();  // what was held back, as U+FFFD

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

// Whether this build reads SentencePiece models.
bool has_sentencepiece();

}  // namespace g2::tokenizer
