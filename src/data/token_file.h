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
//   56  u64      content hash: upper half of XXH3-128 of all that follows (0: not recorded)
//   64  ids, padded with zero bytes to a multiple of 8
//   index  u64[documents + 1]: each document's first token, then the token count
// Every document is BOS, its text, EOS (a raw import keeps what it was given).
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace g2::data {

struct TokenFileInfo {
  std::uint64_t vocab_size = 0;
  std::uint64_t vocabulary_hash = 0;
};

// Writes "<path>.tmp-<random>" as documents come and puts it in place, synced, in finish(). Without
// finish() nothing is left behind. Memory: 8 bytes a document.
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
  void put(const void* data, std::size_t bytes);
  void put_content(const void* data, std::size_t bytes);

  std::filesystem::path path_, temporary_;
  TokenFileInfo info_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  base::Hasher128 hasher_;  // of what stands behind the header
  std::vector<std::uint16_t> narrow_;
  std::vector<std::uint64_t> index_;
  std::uint64_t tokens_ = 0;
};

class TokenFile {
 public:
  // Checks header, sizes and index before anything is used, and in files up to kVerifiedBytes every
  // id and the content hash too; in larger ones verify() does. Throws DataError naming the file,
  // what was found and what was expected.
  explicit TokenFile(const std::filesystem::path& path);
  static constexpr std::uint64_t kVerifiedBytes = std::uint64_t{256} << 20;

  const TokenFileInfo& info() const { return info_; }
  // Two files with the same hash have the same documents. Reads the file when none is recorded.
  std::uint64_t content_hash() const;
  std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_); }
  std::int64_t documents() const { return static_cast<std::int64_t>(index_.size()) - 1; }
  std::int64_t document_begin(std::int64_t document) const {
    return static_cast<std::int64_t>(index_[document]);
  }
  std::int64_t document_tokens(std::int64_t document) const {
    return static_cast<std::int64_t>(index_[document + 1] - index_[document]);
  }
  // Tokens [begin, begin + out.size()) of the whole file. Requires that they exist. Throws
  // DataError for an id outside the vocabulary.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

  // Reads the whole file; throws DataError for an id out of range or another content hash.
  void verify() const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void check_index() const;

  std::filesystem::path path_;
  base::MappedFile file_;
  TokenFileInfo info_;
  std::uint64_t recorded_hash_ = 0;
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
