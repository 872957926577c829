// Conversion of stored elements; little-endian hosts only, as checked below.
#include <bit>
#include <cstring>

#include "base/bf16.h"
#include "base/error.h"
#include "base/text.h"
#include "io/safetensors.h"

namespace g2::io {
namespace {

static_assert(std::endian::native == std::endian::little);

struct F16 {
  std::uint16_t bits = 0;

  explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t exponent = bits >> 10 & 0x1fU;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in float
      const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    const std::uint32_t widened = exponent == 0x1f ? 0xffU : exponent + 112;  // infinity, NaN stay
    return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};

template <typename From, typename To>
void convert(Bytes bytes, std::span<To> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    out[i] = static_cast<To>(value);
  }
}

template <typename To>
void decode_to(FileType type, Bytes bytes, std::span<To> out) {
  switch (type) {
    case FileType::kF64:
      return convert<double>(bytes, out);
    case FileType::kF32:
      return convert<float>(bytes, out);
    case FileType::kBF16:
      return convert<bf16>(bytes, out);
    case FileType::kF16:
      return convert<F16>(bytes, out);
    default:
      throw base::DataError(base::cat(
          "values of type ", type_name(type), " where F64, F32, BF16 or F16 is expected"));
  }
}

}  // namespace

void decode(FileType type, Bytes bytes, std::span<float> out) {
  decode_to(type, bytes, out);
}

void decode(FileType type, Bytes bytes, std::span<double> out) {
  decode_to(type, bytes, out);
}

}  // namespace g2::io
