// What a run's data is, as one number.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples.h"

namespace g2::data {

// Up to this many tokens the ids themselves are hashed, a fraction of a second.
inline constexpr std::int64_t kHashedTokens = std::int64_t{1} << 27;

// Continues `hash` over the documents, in order: their ids, whichever files they lie in. Of more
// than `hashed_tokens` tokens, the content hashes of their files and their places there, so that a
// start does not read everything; then the same documents in other files hash differently.
std::uint64_t documents_hash(const std::vector<Samples::Document>& documents,
                             std::uint64_t hash,
                             std::int64_t hashed_tokens = kHashedTokens);

}  // namespace g2::data
