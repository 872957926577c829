// Any bytes, as a whole file and as the JSON of a well-formed frame: either a DataError, or a
// header whose tensors fill the data exactly. Seeds: tests/fuzz/seeds/safetensors.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "io/safetensors.h"

namespace {

void check(g2::io::Bytes file) {
  try {
    const g2::io::SafetensorsHeader header = g2::io::parse_safetensors(file, "fuzz");
    std::uint64_t covered = header.data_begin;
    for (const g2::io::TensorInfo& tensor : header.tensors) {
      const auto bytes =
          static_cast<std::uint64_t>(tensor.elements()) * g2::io::type_bytes(tensor.type);
      if (header.data_begin + tensor.begin != covered) std::abort();
      covered += bytes;
      if (header.data_begin + tensor.end != covered) std::abort();
    }
    if (covered != file.size()) std::abort();
  } catch (const g2::base::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kDataBytes = 64;
  check(std::as_bytes(std::span(data, size)));
  std::string framed(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) framed[i] = static_cast<char>(size >> (8 * i) & 0xff);
  framed.append(reinterpret_cast<const char*>(data), size);
  framed.append(kDataBytes, '\0');
  check(std::as_bytes(std::span(framed)));
  return 0;
}
