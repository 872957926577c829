// Hashes for files, configs and vocabularies: XXH3 (xxhash), 64 and 128 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace g2::base {

std::uint64_t hash64(const void* data, std::size_t bytes, std::uint64_t seed = 0);
inline std::uint64_t hash64(std::string_view text) {
  return hash64(text.data(), text.size());
}

// 32 hexadecimal digits of XXH3-128, most significant first (as `xxh128sum` prints).
std::string hash128_hex(const void* data, std::size_t bytes);

// The same over data that comes in pieces.
class Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  void update(const void* data, std::size_t bytes);
  std::string hex() const;
  std::uint64_t high64() const;  // the first half of hex()
  void reset();                  // as if nothing had come

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hex64(std::uint64_t value);

}  // namespace g2::base
