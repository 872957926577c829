// Token files: documents as ids, ready to be mapped into memory.
//
// Layout, little endian, every part 8-byte aligned:
//   0   char[8]  "G2TOKENS"
//   8   u32      version, 1
//   12  u32      bytes of an id: 2 or 4 (2 when the vocabulary has at most 65,536 ids)
//   16  u64      vocabulary size
//   24  u64      vocabulary hash (0: unknown, a raw import)
//   32  u64      tokens
//   40  u64      documents
//   48  u64      offset of the document index
//   56  u64      0, reserved
//   64  ids, padded with zero bytes to a multiple of 8
//   index  u64[documents + 1]: each document's first token, then the token count
// Every document is BOS, its text, EOS (a raw import keeps what it was given).
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"

namespace g2::data {

struct TokenFileInfo {
  std::uint64_t vocab_size = 0;
  std::uint64_t vocabulary_hash = 0;
};

// Writes "<path>.tmp-<pid>" as documents come and puts it in place, synced, in finish(). Without
// finish() nothing is left behind.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& path, TokenFileInfo info);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // Throws DataError for an id outside [0, vocab_size), IoError when the disk is full.
  void add_document(std::span<const std::int32_t> ids);
  void finish();

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t documents() const { return index_.size(); }

 private:
  void write(const void* data, std::size_t bytes);

  std::filesystem::path path_, temporary_;
  TokenFileInfo info_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::vector<std::uint64_t> index_;
  std::uint64_t tokens_ = 0;
};

class TokenFile {
 public:
  // Checks header, sizes, index and the range of every id before anything is used; throws DataError
  // naming the file, what was found and what was expected.
  explicit TokenFile(const std::filesystem::path& path);

  const TokenFileInfo& info() const { return info_; }
  std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_); }
  std::int64_t documents() const { return static_cast<std::int64_t>(index_.size()) - 1; }
  std::int64_t document_begin(std::int64_t document) const {
    return static_cast<std::int64_t>(index_[document]);
  }
  std::int64_t document_tokens(std::int64_t document) const {
    return static_cast<std::int64_t>(index_[document + 1] - index_[document]);
  }
  // Tokens [begin, begin + out.size()) of the whole file. Requires that they exist.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  void check_ids(const std::filesystem::path& path) const;

  base::MappedFile file_;
  TokenFileInfo info_;
  std::uint64_t tokens_ = 0;
  std::uint32_t id_bytes_ = 0;
  const std::byte* ids_ = nullptr;
  std::span<const std::uint64_t> index_;
};

// Whether a file starts like a token file.
bool is_token_file(const std::filesystem::path& path);

// Raw u32 ids to a token file; a document begins at each `bos` (the first token begins one anyway).
void import_raw_u32(const std::filesystem::path& raw,
                    const std::filesystem::path& output,
                    std::uint64_t vocab_size,
                    std::int32_t bos);

}  // namespace g2::data
