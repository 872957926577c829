// Must catch: a header believed where it contradicts itself or the file, a second tensor of the
// same name, unaligned data, a missing format mark, half-precision conversions that are not exact.
#include "io/safetensors.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/bf16.h"
#include "base/error.h"
#include "tests/support/support.h"

namespace g2::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return file + json + std::string(data_bytes, 'x');
}

std::string error_of(const std::string& file) {
  try {
    parse_safetensors(std::as_bytes(std::span(file)), "w.safetensors");
  } catch (const base::DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file = file_of(
      R"({"b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]},
          "__metadata__": {"format": "pt"},
          "empty": {"dtype": "F16", "shape": [0, 5], "data_offsets": [8, 8]},
          "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}   )",
      32);
  const SafetensorsHeader header = parse_safetensors(std::as_bytes(std::span(file)), "w");
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].elements(), 1);
  EXPECT_EQ(header.tensors[1].name, "empty");
  EXPECT_EQ(header.tensors[2].describe(), "[2, 3] F32");
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, RefusesWhatContradictsItself) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}})",
       "a has dtype \"F8_E4M3\""},
      {R"({"a": {"dtype": 3, "shape": [8], "data_offsets": [0, 8]}})", "a has dtype 3"},
      {R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})",
       "a [3] F32 needs 12 bytes"},
      {R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", "-2 in its shape"},
      {R"({"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}})", "2.0 in its shape"},
      {R"({"a": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}})", "expected a list"},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}})",
       "more than any file"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", "needs 8 bytes"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}})", "expected [begin, end]"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 1e99]}})",
       "in its data_offsets"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [18446744073709551608, 18446744073709551615]}})",
       "more than any file"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}})", "a ends at byte"},
      {R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})",
       "bytes 0 to 4 of the data, before a"},
      {R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
       "the tensors end at byte"},
      {R"({"a": {"dtype": "U8", "shape": [5], "data_offsets": [0, 5]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})",
       "b overlaps a"},
      {R"({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}})",
       "holds 'a' twice"},
      {R"({"a": {"dtype": "U8", "shape": [8], "shape": [8], "data_offsets": [0, 8]}})",
       "holds 'shape' twice"},
      {R"({"a": {"dtype": "U8", "shape": [8]}})", "a has no data_offsets"},
      {R"({"a": 3})", "a has no dtype"},
      {R"({"__metadata__": {"format": 1}})", "__metadata__.format is not a string"},
      {R"({"__metadata__": []})", "__metadata__ is not a JSON object"},
      {R"({"a": )", "header is not JSON"},
      {R"({"a": 1e999})", "header is not JSON: number overflow"},
      {"{\"\xff\": 1}", "header is not JSON: parse error"},
      {"[]", "not a JSON object"},
      {"{}", "the tensors end at byte"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_THAT(error_of(file_of(json, 8)),
                testing::AllOf(HasSubstr("w.safetensors: "), HasSubstr(message)));
  }
}

TEST(SafetensorsHeader, RefusesACutFileAtEveryLength) {
  const std::string file =
      file_of(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})", 16);
  EXPECT_EQ(error_of(file), "no error");
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(error_of(file.substr(0, length)), "no error") << length;
  }
  EXPECT_THAT(error_of(file.substr(0, 30)), HasSubstr("incomplete download?"));
  EXPECT_THAT(error_of(file.substr(0, file.size() - 1)), HasSubstr("incomplete download?"));
  EXPECT_THAT(error_of("<!DOCTYPE html>"), HasSubstr("not a safetensors file?"));
}

TEST(SafetensorsHeader, SurvivesRandomDamage) {
  const std::string file = file_of(
      R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [16, 24]}})",
      24);
  std::mt19937_64 rng(42);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = file;
    for (int n = 0; n < 1 + round % 3; ++n) {
      damaged[rng() % damaged.size()] = static_cast<char>(rng());
    }
    error_of(damaged);  // any verdict; sanitizers and uncaught exceptions judge
  }
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const test::TempFolder folder;
  std::string file;
  SafetensorsWriter writer({{.name = "x", .type = FileType::kBF16, .shape = {3}},
                            {.name = "y", .type = FileType::kF32, .shape = {2, 1}}},
                           {{"note", "n"}},
                           [&file](Bytes bytes) {
                             file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                           });
  const bf16 x[] = {bf16(1.0F), bf16(-2.5F), bf16(0.0F)};
  const float y[] = {3, 4};
  writer.append(std::as_bytes(std::span(x)));
  EXPECT_THROW(writer.finish(), std::logic_error);
  writer.append(std::as_bytes(std::span(y)).subspan(0, 3));  // cut anywhere
  writer.append(std::as_bytes(std::span(y)).subspan(3));
  writer.finish();
  EXPECT_EQ(file.size(), writer.file_bytes());
  EXPECT_THROW(writer.append(std::as_bytes(std::span(y))), std::logic_error);

  test::write_text(folder / "w.safetensors", file);
  const SafetensorsFile read(folder / "w.safetensors");
  EXPECT_EQ((file.size() - 6 - 8) % 8, 0U);  // the data starts at a multiple of 8
  EXPECT_EQ(read.metadata().at("format"), "pt");
  EXPECT_EQ(read.metadata().at("note"), "n");
  std::vector<float> values(3);
  decode(FileType::kBF16, read.bytes(read.at("x")), values);
  EXPECT_THAT(values, ElementsAre(1, -2.5, 0));
  values.resize(2);
  decode(FileType::kF32, read.bytes(read.at("y")), values);  // starts at byte 6 of the data
  EXPECT_THAT(values, ElementsAre(3, 4));
  EXPECT_EQ(read.find("z"), nullptr);
}

TEST(SafetensorsWriter, RefusesTwoTensorsOfOneName) {
  EXPECT_THROW(SafetensorsWriter(
                   {{.name = "x", .shape = {1}}, {.name = "x", .shape = {1}}}, {}, [](Bytes) {}),
               std::logic_error);
}

TEST(SafetensorsFile, UnknownNameSuggestsTheNearest) {
  const test::TempFolder folder;
  test::write_text(
      folder / "w",
      file_of(R"({"model.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
              4));
  const SafetensorsFile file(folder / "w");
  try {
    (void)file.at("model.norms.weight");
    FAIL();
  } catch (const base::DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean 'model.norm.weight'?"));
  }
}

// Every half: the value by the definition of the format, in double.
TEST(Decode, HalfIsExactForAllBitPatterns) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    float got = 0;
    decode(FileType::kF16, std::as_bytes(std::span(&half, 1)), std::span(&got, 1));
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int fraction = static_cast<int>(bits & 1023);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? got == sign * std::numeric_limits<float>::infinity()
                                : std::isnan(got));
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(got, sign * magnitude) << bits;
      ASSERT_EQ(std::signbit(got), sign < 0) << bits;
    }
  }
}

TEST(Decode, DoubleToFloatRoundsAndIntegersAreRefused) {
  const double values[] = {0.1, -1e300};
  float out[2];
  decode(FileType::kF64, std::as_bytes(std::span(values)), out);
  EXPECT_EQ(out[0], 0.1F);
  EXPECT_EQ(out[1], -std::numeric_limits<float>::infinity());
  EXPECT_THROW(decode(FileType::kI64, std::as_bytes(std::span(values)), out), base::DataError);
}

}  // namespace
}  // namespace g2::io
