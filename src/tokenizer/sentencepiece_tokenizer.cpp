#include "tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/piece_types.h"
#include "tokenizer/special_text.h"

namespace g2::tokenizer {
namespace {

using base::cat;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Longer texts are encoded in parts of at least this size, where that changes nothing: the library
// keeps some hundred bytes a character.
constexpr std::size_t kPartBytes = std::size_t{1} << 16;

constexpr std::string_view kHtmlTags[] = {
    "a",      "b",     "bbox",  "blockquote", "body",  "br",  "caption", "code", "div",    "em",
    "footer", "h1",    "h2",    "h3",         "h4",    "h5",  "h6",      "hr",   "html",   "i",
    "iframe", "img",   "li",    "ol",         "p",     "pre", "s",       "span", "strong", "sub",
    "sup",    "table", "tbody", "td",         "tfoot", "th",  "thead",   "tr",   "u",      "ul"};

bool is_html_tag(std::string_view piece) {
  if (piece.size() < 3 || piece.front() != '<' || piece.back() != '>') return false;
  std::string_view name = piece.substr(1, piece.size() - 2);
  if (name.front() == '/') name.remove_prefix(1);
  return std::find(std::begin(kHtmlTags), std::end(kHtmlTags), name) != std::end(kHtmlTags);
}

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (std::size_t i = 0; i < piece.size();) {
    const bool space = piece.substr(i).starts_with(kSpace);
    text += space ? ' ' : piece[i];
    i += space ? kSpace.size() : 1;
  }
  return text;
}

std::size_t first_character_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<std::uint8_t>(text[bytes]) & 0xC0) == 0x80) ++bytes;
  return bytes;
}

// User-defined pieces that are ordinary text in Gemma's vocabulary: white space, HTML tags, single
// characters. Every other one (turn markers, <mask>, <unused0>, another model's markers) forges
// structure when it is taken from a text.
bool is_marker(std::string_view piece) {
  const std::string text = with_spaces(piece);
  return text.find_first_not_of(" \t\r\n") != std::string::npos && !is_html_tag(text) &&
         first_character_bytes(text) < text.size();
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : path_(path) {
    const auto status = processor_.Load(path);
    if (!status.ok()) {
      throw base::DataError(cat(path, ": not a SentencePiece model: ", status.message()));
    }
    special_ = {processor_.pad_id(), processor_.eos_id(), processor_.bos_id(), processor_.unk_id()};
    check_special_ids();
    collect_pieces();
    probe_normaliser();
  }

  std::string name() const override { return path_; }
  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  SpecialIds special() const override { return special_; }
  std::uint64_t vocabulary_hash() const override { return hash_; }

  // SentencePiece matches markers wherever they are written. They are split behind their first
  // character, so that no single piece can match.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::size_t from = 0;
    for (SpecialMatch match = markers_.find(text, from); match.length != 0;
         match = markers_.find(text, from)) {
      const std::size_t end = match.position + first_character_bytes(text.substr(match.position));
      encode_in_parts(text.substr(from, end - from), ids);
      from = end;
    }
    encode_in_parts(text.substr(from), ids);
  }

  void encode_with_special(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::size_t from = 0;
    for (;;) {
      const SpecialMatch match = all_special_.find(text, from);
      encode(text.substr(from, match.position - from), ids);
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
    return with_spaces(text);
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
  void check_special_ids() const {
    const std::pair<const char*, int> required[] = {
        {"BOS", special_.bos}, {"EOS", special_.eos}, {"PAD", special_.pad}};
    for (const auto& [name, id] : required) {
      if (id >= 0) continue;
      throw base::DataError(
          cat(path_, ": the model has no ", name, " piece; Gemma's have PAD 0, EOS 1, BOS 2"));
    }
    if (special_.bos == special_.eos) {
      throw base::DataError(cat(path_,
                                ": BOS and EOS are both id ",
                                special_.bos,
                                ", so that documents would not end; Gemma's have EOS 1, BOS 2"));
    }
  }

  void collect_pieces() {
    const std::string serialized = processor_.serialized_model_proto();
    const std::vector<PieceType> types = piece_types(serialized);
    if (static_cast<std::int64_t>(types.size()) != vocab_size()) {
      throw base::DataError(
          cat(path_, ": ", types.size(), " pieces in the file, ", vocab_size(), " loaded"));
    }
    SpecialPieces markers, all_special;
    base::Hasher128 hasher;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const PieceType type = types[static_cast<std::size_t>(id)];
      const std::string& text = processor_.IdToPiece(id);
      const float score = processor_.GetScore(id);
      hasher.update(text.data(), text.size() + 1);
      hasher.update(&score, sizeof(score));
      hasher.update(&type, sizeof(type));
      const bool marks = type == PieceType::kUserDefined && is_marker(text);
      if (marks) markers.emplace_back(with_spaces(text), id);
      if (marks || type == PieceType::kControl) all_special.emplace_back(with_spaces(text), id);
      has_bytes_ = has_bytes_ || type == PieceType::kByte;
      if (type == PieceType::kNormal || type == PieceType::kUserDefined) note_separators(text);
    }
    markers_ = SpecialMatcher(std::move(markers));
    all_special_ = SpecialMatcher(std::move(all_special));
    hash_ = base::hash64(hasher.hex());
  }

  // A space or line end opens a part only if no piece holds one behind something else: then no
  // merge reaches across, and the parts' ids are those of the whole.
  void note_separators(const std::string& piece) {
    const std::string text = with_spaces(piece);
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i - 1] == text[i]) continue;
      if (text[i] == ' ') parts_at_spaces_ = false;
      if (text[i] == '\n') parts_at_line_ends_ = false;
    }
  }

  // Gemma's models change nothing: identity rule, no dummy prefix, no folding of spaces.
  void probe_normaliser() {
    const std::string probe = "  two  spaces\n\n\xEF\xAC\x81 end ";
    std::vector<std::int32_t> ids;
    encode_whole(probe, ids);
    hash_ = base::hash64(ids.data(), ids.size() * sizeof(ids[0]), hash_);
    std::string bytes;
    for (const std::int32_t id : ids) bytes += token_bytes(id);
    keeps_text_ = bytes == probe;
    if (!keeps_text_) {
      base::log_warning(
          cat(path_,
              ": this model changes text while encoding (normaliser, dummy prefix, folded "
              "spaces or characters it does not know); Gemma's models keep it exactly"));
    }
  }

  // Where the part that starts at `begin` may end.
  std::size_t part_end(std::string_view text, std::size_t begin) const {
    if (!keeps_text_ || !has_bytes_) return text.size();
    for (std::size_t i = begin + kPartBytes; i < text.size(); ++i) {
      const bool opens =
          (text[i] == ' ' && parts_at_spaces_) || (text[i] == '\n' && parts_at_line_ends_);
      // A literal U+2581 is a space to the library.
      if (opens && text[i - 1] != text[i] && !text.substr(0, i).ends_with(kSpace)) return i;
    }
    return text.size();
  }

  void encode_in_parts(std::string_view text, std::vector<std::int32_t>& ids) const {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = part_end(text, begin);
      encode_whole(text.substr(begin, end - begin), ids);
      begin = end;
    }
  }

  void encode_whole(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<int> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw base::DataError(cat(path_, ": cannot encode: ", status.message()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
  SpecialIds special_;
  std::uint64_t hash_ = 0;
  SpecialMatcher markers_;      // user-defined markers: must be broken up in plain text
  SpecialMatcher all_special_;  // those and the control pieces
  bool has_bytes_ = false;      // unknown characters become bytes
  bool keeps_text_ = true;
  bool parts_at_spaces_ = true;
  bool parts_at_line_ends_ = true;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

bool has_sentencepiece() {
  return true;
}

}  // namespace g2::tokenizer
