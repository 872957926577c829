#include "tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/special_text.h"

namespace g2::tokenizer {
namespace {

using base::cat;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, SentencePiece's space

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : path_(path) {
    const auto status = processor_.Load(path);
    if (!status.ok()) {
      throw base::DataError(cat(path, ": not a SentencePiece model: ", status.message()));
    }
    special_ = {processor_.pad_id(), processor_.eos_id(), processor_.bos_id(), processor_.unk_id()};
    const std::pair<const char*, int> required[] = {
        {"BOS", special_.bos}, {"EOS", special_.eos}, {"PAD", special_.pad}};
    for (const auto& [name, id] : required) {
      if (id < 0)
        throw base::DataError(
            cat(path, ": the model has no ", name, " piece; Gemma's have PAD 0, EOS 1, BOS 2"));
    }
    collect_pieces();
    warn_if_normalising();
  }

  std::string name() const override { return path_; }
  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  SpecialIds special() const override { return special_; }
  std::uint64_t vocabulary_hash() const override { return hash_; }

  // Turn markers are user-defined pieces, which SentencePiece matches wherever they are written.
  // They are split after their first character, so that no single piece can match.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::size_t from = 0;
    for (std::size_t search = 0;;) {
      const SpecialMatch match = find_special(markers_, text, search);
      if (match.length == 0) break;
      encode_plain(text.substr(from, match.position + 1 - from), ids);
      from = match.position + 1;
      search = from;
    }
    encode_plain(text.substr(from), ids);
  }

  void encode_with_special(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::size_t from = 0;
    for (;;) {
      const SpecialMatch match = find_special(all_special_, text, from);
      encode(text.substr(from, match.length == 0 ? std::string_view::npos : match.position - from),
             ids);
      if (match.length == 0) return;
      ids.push_back(match.id);
      from = match.position + match.length;
    }
  }

  std::string token_bytes(std::int32_t id) const override {
    if (id < 0 || id >= vocab_size() || processor_.IsControl(id)) return "";
    const std::string& text = processor_.IdToPiece(id);
    if (processor_.IsByte(id))
      return std::string(1, static_cast<char>(std::stoi(text.substr(3, 2), nullptr, 16)));
    if (processor_.IsUnknown(id)) return "\xEF\xBF\xBD";
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const bool space = text.compare(i, kSpace.size(), kSpace) == 0;
      out += space ? ' ' : text[i];
      i += space ? kSpace.size() : 1;
    }
    return out;
  }

  std::string piece(std::int32_t id) const override {
    return id < 0 || id >= vocab_size() ? "?" : processor_.IdToPiece(id);
  }

  std::optional<std::int32_t> piece_id(std::string_view wanted) const override {
    const int id = processor_.PieceToId({wanted.data(), wanted.size()});
    if (processor_.IdToPiece(id) != std::string(wanted)) return std::nullopt;
    return id;
  }

 private:
  void encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return;
    std::vector<int> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw base::DataError(cat(path_, ": cannot encode: ", status.message()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  // Special is what forges structure when written in a text: control pieces, <start_of_turn>,
  // <end_of_turn>, <mask>, <unused0> and the like. Other user-defined pieces (runs of spaces or
  // newlines, HTML tags) are ordinary vocabulary.
  static bool is_marker(const std::string& piece) {
    return piece == "<start_of_turn>" || piece == "<end_of_turn>" || piece == "<mask>" ||
           piece == "<2mass>" || piece == "[@BOS@]" || piece.starts_with("<unused");
  }

  void collect_pieces() {
    base::Hasher128 hasher;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& text = processor_.IdToPiece(id);
      const float score = processor_.GetScore(id);
      hasher.update(text.data(), text.size() + 1);
      hasher.update(&score, sizeof(score));
      if (processor_.IsControl(id)) all_special_.emplace_back(text, id);
      if (!processor_.IsControl(id) && is_marker(text)) {
        markers_.emplace_back(text, id);
        all_special_.emplace_back(text, id);
      }
    }
    hash_ = base::hash64(hasher.hex());
  }

  // Gemma's models change nothing (identity rule, no dummy prefix, no folding of spaces).
  void warn_if_normalising() const {
    const std::string probe = "  two  spaces\n\n\xEF\xAC\x81 end ";
    std::vector<std::int32_t> ids;
    encode_plain(probe, ids);
    std::string bytes;
    for (const std::int32_t id : ids) bytes += token_bytes(id);
    if (bytes != probe) {
      base::log_warning(
          cat(path_,
              ": this model changes text while encoding (normaliser, dummy prefix, folded "
              "spaces or characters it does not know); Gemma's models keep it exactly"));
    }
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
  SpecialIds special_;
  std::uint64_t hash_ = 0;
  SpecialPieces markers_;      // user-defined markers: must be broken up in plain text
  SpecialPieces all_special_;  // those and the control pieces
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

bool has_sentencepiece() {
  return true;
}

}  // namespace g2::tokenizer
