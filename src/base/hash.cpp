#include "base/hash.h"

#include <xxhash.h>

#include <array>
#include <cstdio>

namespace g2::base {
namespace {

std::string hex128(XXH128_hash_t hash) {
  return hex64(hash.high64) + hex64(hash.low64);
}

}  // namespace

std::uint64_t hash64(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::string hash128_hex(const void* data, std::size_t bytes) {
  return hex128(XXH3_128bits(data, bytes));
}

struct Hasher128::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> xxh{XXH3_createState(), XXH3_freeState};
};

Hasher128::Hasher128() : state_(std::make_unique<State>()) {
  reset();
}
Hasher128::~Hasher128() = default;
void Hasher128::update(const void* data, std::size_t bytes) {
  XXH3_128bits_update(state_->xxh.get(), data, bytes);
}
std::uint64_t Hasher128::high64() const {
  return XXH3_128bits_digest(state_->xxh.get()).high64;
}
void Hasher128::reset() {
  XXH3_128bits_reset(state_->xxh.get());
}
std::string Hasher128::hex() const {
  return hex128(XXH3_128bits_digest(state_->xxh.get()));
}

std::string hex64(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace g2::base
