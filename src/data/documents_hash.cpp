#include "data/documents_hash.h"

#include "base/hash.h"

namespace g2::data {
namespace {

std::uint64_t hash_ids(const std::vector<Samples::Document>& documents, std::uint64_t hash) {
  std::vector<std::int32_t> ids;
  for (const Samples::Document& d : documents) {
    ids.resize(static_cast<std::size_t>(d.file->document_tokens(d.index)));
    d.file->read(d.file->document_begin(d.index), ids);
    hash = base::hash64(ids.data(), ids.size() * sizeof(ids[0]), hash + 1);
  }
  return hash;
}

std::uint64_t hash_places(const std::vector<Samples::Document>& documents, std::uint64_t hash) {
  const TokenFile* file = nullptr;
  std::uint64_t content = 0;
  for (const Samples::Document& d : documents) {
    if (d.file.get() != file) {
      file = d.file.get();
      content = file->content_hash();
    }
    const std::uint64_t place[] = {content, static_cast<std::uint64_t>(d.index)};
    hash = base::hash64(place, sizeof(place), hash + 1);
  }
  return hash;
}

}  // namespace

std::uint64_t documents_hash(const std::vector<Samples::Document>& documents,
                             std::uint64_t hash,
                             std::int64_t hashed_tokens) {
  std::int64_t tokens = 0;
  for (const Samples::Document& d : documents) tokens += d.file->document_tokens(d.index);
  return tokens <= hashed_tokens ? hash_ids(documents, hash) : hash_places(documents, hash);
}

}  // namespace g2::data
