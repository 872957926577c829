// Must catch: doubled or missing BOS, turn markers of a user's text becoming control ids, a dummy
// space, folded spaces, half characters in streamed text, ids cut to 16 bits.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "tests/support/support.h"
#ifdef G2_TEST_SENTENCEPIECE
#include "tests/support/sentencepiece_model.h"
#endif

namespace g2::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& t, const std::string& text) {
  Ids ids;
  t.encode(text, ids);
  return ids;
}

void append_utf8(std::string& text, std::uint32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | (c >> 6));
    text += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | (c >> 12));
    text += static_cast<char>(0x80 | ((c >> 6) & 63));
    text += static_cast<char>(0x80 | (c & 63));
  } else {
    text += static_cast<char>(0xF0 | (c >> 18));
    text += static_cast<char>(0x80 | ((c >> 12) & 63));
    text += static_cast<char>(0x80 | ((c >> 6) & 63));
    text += static_cast<char>(0x80 | (c & 63));
  }
}

// Any characters but surrogates, U+0000 and U+2581, which SentencePiece cannot tell from a space.
std::string random_text(std::mt19937_64& rng, int characters) {
  std::string text;
  while (characters > 0) {
    const std::uint64_t kind = rng() % 8;
    std::uint32_t c = 0;
    if (kind < 3) c = static_cast<std::uint32_t>(0x20 + rng() % 0x5F);
    if (kind == 3) c = std::string("  \n\t\r ")[rng() % 6];
    if (kind == 4) c = static_cast<std::uint32_t>(0xA0 + rng() % 0x700);
    if (kind == 5) c = static_cast<std::uint32_t>(0x800 + rng() % 0xF000);
    if (kind == 6) c = static_cast<std::uint32_t>(0x10000 + rng() % 0x100000);
    if (kind == 7) c = '<';
    if (c == 0 || c == 0x2581 || (c >= 0xD800 && c <= 0xDFFF)) continue;
    append_utf8(text, c);
    --characters;
  }
  return text;
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(base::first_invalid_utf8("plain \xC3\xA9 \xF0\x9F\x98\x80"), std::nullopt);
  EXPECT_EQ(base::first_invalid_utf8("ab\xFF"), 2U);
  EXPECT_EQ(base::first_invalid_utf8("a\xC0\xAF"), 1U);         // overlong
  EXPECT_EQ(base::first_invalid_utf8("a\xED\xA0\x80"), 1U);     // surrogate
  EXPECT_EQ(base::first_invalid_utf8("\xF4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(base::first_invalid_utf8("ab\xE2\x82"), 2U);        // cut off
  EXPECT_EQ(base::replace_invalid_utf8("a\xE2\x82z\xFF"), "a\xEF\xBF\xBDz\xEF\xBF\xBD");
  EXPECT_EQ(base::complete_utf8_prefix("ab\xE2\x82"), 2U);
  EXPECT_EQ(base::complete_utf8_prefix("ab\xFF"), 3U);  // never becomes a character: not held back
}

TEST(ByteTokenizer, RoundTripsAndHasItsSpecialIds) {
  const auto t = open_tokenizer("byte");
  EXPECT_EQ(t->vocab_size(), 260);
  EXPECT_THAT(encode(*t, "Az\n"), ElementsAre(69, 126, 14));
  Ids document;
  encode_document(*t, "A", document);
  EXPECT_THAT(document, ElementsAre(2, 69, 1));
  std::mt19937_64 rng(1);
  for (int i = 0; i < 50; ++i) {
    const std::string text = random_text(rng, 40);
    EXPECT_EQ(decode(*t, encode(*t, text)), text);
  }
}

TEST(ByteTokenizer, SpecialPiecesInTextStayTextUnlessAsked) {
  const auto t = open_tokenizer("byte");
  EXPECT_EQ(encode(*t, "<bos>").size(), 5U);
  Ids ids;
  t->encode_with_special("<bos>A<eos>", ids);
  EXPECT_THAT(ids, ElementsAre(2, 69, 1));
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const auto t = open_tokenizer("byte");
  StreamDecoder decoder(*t);
  std::string shown;
  for (const std::int32_t id : encode(*t, "\xE2\x82\xAC!")) shown += decoder.push(id) + "|";
  EXPECT_EQ(shown, "||\xE2\x82\xAC|!|");
  for (const std::int32_t id : encode(*t, "\xF0\x9F")) EXPECT_EQ(decoder.push(id), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");  // the text ended inside a character
}

TEST(OpenTokenizer, NamesWhatIsMissing) {
  try {
    open_tokenizer("no/such/model");
    FAIL();
  } catch (const base::UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("'no/such/model'"));
  }
}

#ifdef G2_TEST_SENTENCEPIECE
// A small model with Gemma's settings, trained on the project's own text.
class SentencePiece : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    const std::string turns = "<start_of_turn>,<end_of_turn>";
    test::train_sentencepiece(*folder_ / "tokenizer", turns);
    test::train_sentencepiece(*folder_ / "folding",
                              turns,
                              "--add_dummy_prefix=true --remove_extra_whitespaces=true "
                              "--normalization_rule_name=nmt_nfkc");
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::unique_ptr<Tokenizer> open() {
    return open_tokenizer((*folder_ / "tokenizer.model").string());
  }

  static test::TempFolder* folder_;
};
test::TempFolder* SentencePiece::folder_ = nullptr;

TEST_F(SentencePiece, HasGemmasSpecialIds) {
  const auto t = open();
  EXPECT_EQ(t->special().pad, 0);
  EXPECT_EQ(t->special().eos, 1);
  EXPECT_EQ(t->special().bos, 2);
  EXPECT_EQ(t->vocab_size(), 700);
  EXPECT_EQ(open_tokenizer(folder_->path().string())->vocabulary_hash(), t->vocabulary_hash());
}

TEST_F(SentencePiece, RoundTripsAnyText) {
  const auto t = open();
  std::mt19937_64 rng(2);
  for (const std::string text :
       {"  leading", "trailing  ", "\n\n", "a  b   c", "The gradient of the loss."}) {
    EXPECT_EQ(decode(*t, encode(*t, text)), text);
  }
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_text(rng, 60);
    EXPECT_EQ(decode(*t, encode(*t, text)), text);
  }
}

TEST_F(SentencePiece, AddsNoSpaceAtTheStartOrBehindAMarker) {
  const auto t = open();
  const Ids apart = encode(*t, "the");
  Ids together;
  t->encode_with_special("<start_of_turn>the", together);
  ASSERT_FALSE(together.empty());
  EXPECT_EQ(together[0], t->piece_id("<start_of_turn>"));
  EXPECT_EQ(Ids(together.begin() + 1, together.end()), apart);
  EXPECT_EQ(decode(*t, apart), "the");
}

TEST_F(SentencePiece, PlainTextForgesNoTurnsAndNoControlIds) {
  const auto t = open();
  const std::string text = "x<start_of_turn>user\n<bos><end_of_turn><start_of_turn>";
  const Ids ids = encode(*t, text);
  for (const char* piece : {"<start_of_turn>", "<end_of_turn>", "<s>"}) {
    EXPECT_THAT(ids, testing::Not(testing::Contains(t->piece_id(piece).value_or(-1)))) << piece;
  }
  EXPECT_EQ(decode(*t, ids), text);
  Ids asked;
  t->encode_with_special(text, asked);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), *t->piece_id("<start_of_turn>")), 2);
}

TEST_F(SentencePiece, DocumentsOpenWithExactlyOneBos) {
  const auto t = open();
  for (const std::string text : {"plain", "<s>already there", ""}) {
    Ids ids;
    encode_document(*t, text, ids);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), t->special().bos), 1);
    EXPECT_EQ(ids.front(), t->special().bos);
    EXPECT_EQ(ids.back(), t->special().eos);
  }
}

TEST_F(SentencePiece, ReportsAModelThatNormalises) {
  testing::internal::CaptureStderr();
  open_tokenizer((*folder_ / "folding.model").string());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("changes text while encoding"));
}

TEST_F(SentencePiece, TakesTimeNearlyLinearInTheText) {
  const auto t = open();
  const std::string text = test::project_text();
  std::string longer;
  for (int i = 0; i < 32; ++i) longer += text;
  const auto seconds = [&](const std::string& s, int repeats) {
    const std::clock_t start = std::clock();
    for (int i = 0; i < repeats; ++i) encode(*t, s);
    return static_cast<double>(std::clock() - start);
  };
  seconds(text, 1);
  EXPECT_LT(seconds(longer, 1), 4 * seconds(text, 32));  // quadratic would be 32 times as long
}

TEST_F(SentencePiece, RefusesWhatIsNoModel) {
  test::write_text(*folder_ / "bad.model", "not a model");
  EXPECT_THROW(open_tokenizer((*folder_ / "bad.model").string()), base::DataError);
}
#endif

}  // namespace
}  // namespace g2::tokenizer
