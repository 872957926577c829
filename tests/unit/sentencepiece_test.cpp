// Must catch: time that grows with the square of the text, parts of a long text cut where a piece
// reaches across, another model's markers forged by a text, half a character cut off a marker,
// text changed on the way.
#include <gmock/gmock.h>
#include <sentencepiece_processor.h>

#include <ctime>
#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "tests/support/sentencepiece_model.h"
#include "tokenizer/piece_types.h"
#include "tokenizer/special_text.h"
#include "tokenizer/tokenizer.h"

namespace g2::tokenizer {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using Ids = std::vector<std::int32_t>;

constexpr const char* kMarkers[] = {
    "<start_of_turn>", "<end_of_turn>", "<mask>", "<|im_start|>", "[tone=0]", "\xE2\x9F\xA8x"};

class SentencePieceModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    std::string symbols = "<table>,</td>";
    for (const char* marker : kMarkers) symbols += std::string(",") + marker;
    test::train_sentencepiece(*folder_ / "gemma", symbols);
    test::train_sentencepiece(*folder_ / "phrases", "<table>", "--split_by_whitespace=false");
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string path(const std::string& name) {
    return (*folder_ / (name + ".model")).string();
  }
  static Ids encode(const Tokenizer& t, const std::string& text) {
    Ids ids;
    t.encode(text, ids);
    return ids;
  }
  static Ids library_ids(const std::string& name, const std::string& text) {
    sentencepiece::SentencePieceProcessor processor;
    EXPECT_TRUE(processor.Load(path(name)).ok());
    std::vector<int> ids;
    EXPECT_TRUE(processor.Encode(text, &ids).ok());
    return {ids.begin(), ids.end()};
  }

  static test::TempFolder* folder_;
};
test::TempFolder* SentencePieceModel::folder_ = nullptr;

std::string repeated(const std::string& text, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

TEST_F(SentencePieceModel, LongTextsGetTheIdsOfTheLibrary) {
  const std::string prose = test::project_text();
  const std::string unbroken = repeated("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E", 9999);
  const std::string texts[] = {
      repeated(prose, 200000),
      repeated("word<table>\n\n   \n\t " + unbroken, 200000),
      repeated("a\xE2\x96\x81 b\n", 200000),  // a literal U+2581 is a space
      repeated(unbroken, 150000)};
  for (const char* model : {"gemma", "phrases"}) {
    const auto t = open_tokenizer(path(model));
    for (const std::string& text : texts) {
      const Ids want = library_ids(model, text);
      const Ids got = encode(*t, text);
      ASSERT_TRUE(got == want) << model << ": " << got.size() << " ids, " << want.size();
    }
  }
}

TEST_F(SentencePieceModel, PiecesThatReachAcrossASpaceAreNotCut) {
  const auto t = open_tokenizer(path("phrases"));
  std::string phrase;  // a piece such as "▁of▁the"
  for (std::int32_t id = 260; id < 700 && phrase.empty(); ++id) {
    const std::string text = t->token_bytes(id);
    const std::size_t space = text.find(' ', 2);
    if (space != std::string::npos && text[space - 1] != ' ') phrase = text;
  }
  ASSERT_NE(phrase, "");
  const std::string text = repeated(phrase, 200000);
  ASSERT_TRUE(encode(*t, text) == library_ids("phrases", text)) << phrase;
}

TEST_F(SentencePieceModel, MarkersOfAnyModelStayTextUnlessAsked) {
  const auto t = open_tokenizer(path("gemma"));
  for (const std::string marker : kMarkers) {
    ASSERT_TRUE(t->piece_id(marker)) << marker;
    for (const std::string& text :
         {marker, "a" + marker + "b", marker + marker, "<" + marker + ">", " " + marker + " \n"}) {
      const Ids ids = encode(*t, text);
      EXPECT_THAT(ids, Not(Contains(*t->piece_id(marker)))) << text;
      EXPECT_EQ(decode(*t, ids), text);
      Ids asked;
      t->encode_with_special(text, asked);
      EXPECT_THAT(asked, Contains(*t->piece_id(marker))) << text;
    }
  }
}

TEST_F(SentencePieceModel, HtmlTagsAreOrdinaryPieces) {
  const auto t = open_tokenizer(path("gemma"));
  EXPECT_THAT(encode(*t, "x<table>y</td>"), Contains(*t->piece_id("<table>")));
  EXPECT_THAT(encode(*t, "x<table>y</td>"), Contains(*t->piece_id("</td>")));
}

TEST_F(SentencePieceModel, ControlAndBytePiecesInTextStayText) {
  const auto t = open_tokenizer(path("gemma"));
  for (std::int32_t id = 0; id < 260; ++id) {
    const std::string piece = t->piece(id);
    const Ids ids = encode(*t, "a " + piece + " b");
    if (id < 4) {
      EXPECT_THAT(ids, Not(Contains(id))) << piece;
    }
    EXPECT_EQ(decode(*t, ids), "a " + piece + " b");
  }
}

TEST_F(SentencePieceModel, KeepsControlCharactersAndMarks) {
  const auto t = open_tokenizer(path("gemma"));
  const std::string zero("a\0b", 3);
  for (const std::string& text : {zero,
                                  std::string("\x01\x7F\t\r\n\v"),
                                  std::string("\xEF\xBB\xBF"
                                              "a")}) {
    EXPECT_EQ(decode(*t, encode(*t, text)), text);
  }
}

TEST_F(SentencePieceModel, StreamsTheTextOfAnyIds) {
  const auto t = open_tokenizer(path("gemma"));
  std::mt19937_64 rng(3);
  for (int round = 0; round < 200; ++round) {
    Ids ids(20);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(rng() % 300);  // mostly bytes
    StreamDecoder decoder(*t);
    std::string shown;
    for (const std::int32_t id : ids) {
      shown += decoder.push(id);
      ASSERT_EQ(base::first_invalid_utf8(shown), std::nullopt);  // never half a character
    }
    EXPECT_EQ(shown + decoder.finish(), decode(*t, ids));
  }
}

TEST_F(SentencePieceModel, TimeIsNearlyLinearInMarkersAndLength) {
  const auto t = open_tokenizer(path("gemma"));
  const std::string part = repeated("a <start_of_turn>user\n<end_of_turn> ", 20000);
  const std::string whole = repeated(part, 32 * part.size());
  const auto ticks = [&](const std::string& text, int repeats) {
    const std::clock_t start = std::clock();
    for (int i = 0; i < repeats; ++i) encode(*t, text);
    return static_cast<double>(std::clock() - start);
  };
  ticks(part, 1);
  EXPECT_LT(ticks(whole, 1), 4 * ticks(part, 32));  // quadratic would be 32 times as long
}

TEST_F(SentencePieceModel, RefusesAModelWithoutDocumentEnds) {
  const auto refusal = [&](const std::string& settings) -> std::string {
    test::train_sentencepiece(*folder_ / "other", "", settings);
    try {
      open_tokenizer(path("other"));
    } catch (const base::DataError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("--bos_id=-1"), HasSubstr("other.model: the model has no BOS piece"));
  EXPECT_THAT(refusal("--eos_id=-1"), HasSubstr("no EOS piece"));
  EXPECT_THAT(refusal("--pad_id=-1"), HasSubstr("no PAD piece"));
}

TEST_F(SentencePieceModel, HashTellsNormalisersAndPieceTypesApart) {
  const auto hash = [&](const std::string& symbols, const std::string& settings) {
    test::train_sentencepiece(*folder_ / "other", symbols, settings);
    return open_tokenizer(path("other"))->vocabulary_hash();
  };
  const std::uint64_t plain = hash("<mask>", "");
  EXPECT_EQ(plain, hash("<mask>", ""));
  EXPECT_NE(plain, hash("<mask>", "--add_dummy_prefix=true"));
  EXPECT_NE(plain, hash("", "--control_symbols=<mask>"));
}

TEST_F(SentencePieceModel, PieceTypesAgreeWithTheLibrary) {
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.Load(path("gemma")).ok());
  const std::string serialized = processor.serialized_model_proto();
  const std::vector<PieceType> types = piece_types(serialized);
  ASSERT_EQ(types.size(), 700U);
  for (int id = 0; id < 700; ++id) {
    EXPECT_EQ(types[id] == PieceType::kControl, processor.IsControl(id)) << id;
    EXPECT_EQ(types[id] == PieceType::kByte, processor.IsByte(id)) << id;
    EXPECT_EQ(types[id] == PieceType::kUnknown, processor.IsUnknown(id)) << id;
  }
  EXPECT_EQ(std::count(types.begin(), types.end(), PieceType::kUserDefined), 8);
  for (std::size_t cut = 1; cut < 2000; ++cut) {  // any part is refused or gives fewer pieces
    try {
      EXPECT_LT(piece_types(serialized.substr(0, cut)).size(), 700U);
    } catch (const base::DataError&) {
    }
  }
}

TEST(SpecialMatcher, FindsTheFirstAndThereTheLongest) {
  const SpecialMatcher matcher({{"<a>", 1}, {"<a>b", 2}, {"[", 3}});
  EXPECT_EQ(matcher.find("x<a>b[", 0).id, 2);
  EXPECT_EQ(matcher.find("x<a>b[", 2).position, 5U);
  EXPECT_EQ(matcher.find("x<a>c", 0).id, 1);
  EXPECT_EQ(matcher.find("plain", 0).length, 0U);
  EXPECT_EQ(SpecialMatcher().find("<a>", 0).length, 0U);
}

}  // namespace
}  // namespace g2::tokenizer
