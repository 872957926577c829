// Counter-based random numbers: Philox 4x32-10 and normals made from them.
//
// There is no hidden state: a value depends only on (seed, purpose, stream, index), so it is the
// same for any thread or rank count and nothing has to be saved for a resume. Source: Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11); the tests hold its published vectors.
#pragma once

#include <array>
#include <cstdint>

namespace g2::base {

using PhiloxWords = std::array<std::uint32_t, 4>;

inline PhiloxWords philox(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// What the numbers are for: the high key word of every stream, so that no two uses share numbers.
enum class RandomPurpose : std::uint32_t { kInit = 1, kShuffle = 2, kSample = 3, kTest = 4 };

// Words 4*block .. 4*block+3 of stream `stream` (a parameter, an epoch, a sequence).
inline PhiloxWords random_block(std::uint64_t seed,
                                RandomPurpose purpose,
                                std::uint32_t stream,
                                std::uint64_t block) {
  // The seed's high word and the stream share a counter word pair; the purpose is mixed into the
  // key.
  return philox({static_cast<std::uint32_t>(block),
                 static_cast<std::uint32_t>(block >> 32),
                 stream,
                 static_cast<std::uint32_t>(seed >> 32)},
                static_cast<std::uint32_t>(seed),
                static_cast<std::uint32_t>(purpose));
}

// A uniform in (0, 1) from 32 random bits, exactly (bits + 0.5) / 2^32.
inline double uniform_open(std::uint32_t bits) {
  return (bits + 0.5) * 0x1p-32;
}

// The standard normal quantile of p in (0, 1), to about 1e-15.
//
// Only + - * / and sqrt on doubles, each rounded once and none contracted, and frexp: every
// language and device with IEEE arithmetic gives the same bits (scripts/reference_init.py holds the
// twin). Source: Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988).
double normal_quantile(double p);

}  // namespace g2::base
