#include "data/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/text.h"

namespace g2::data {
namespace {

using base::cat;

constexpr char kMagic[8] = {'G', '2', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kLargestVocabulary = std::uint64_t{1} << 31;  // ids are int32 in memory

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t id_bytes;
  std::uint64_t vocab_size;
  std::uint64_t vocabulary_hash;
  std::uint64_t tokens;
  std::uint64_t documents;
  std::uint64_t index_offset;
  std::uint64_t content_hash;
};
static_assert(sizeof(Header) == 64);

std::uint32_t id_bytes_for(std::uint64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

std::uint64_t round_up_8(std::uint64_t n) {
  return (n + 7) / 8 * 8;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, TokenFileInfo info)
    : path_(path), info_(info), file_(nullptr, std::fclose) {
  if (info_.vocab_size == 0 || info_.vocab_size > kLargestVocabulary) {
    throw base::DataError(cat(path_.string(),
                              ": vocabulary size ",
                              info_.vocab_size,
                              ", must be from 1 to ",
                              kLargestVocabulary));
  }
  temporary_ = path.string() + ".tmp-" + base::unique_suffix();
  file_.reset(std::fopen(temporary_.c_str(), "wb"));
  if (!file_) throw base::IoError(cat(path_.string(), ": cannot create: ", std::strerror(errno)));
  const Header blank{};
  put(&blank, sizeof(blank));
}

TokenFileWriter::~TokenFileWriter() {
  if (file_) ::unlink(temporary_.c_str());
}

void TokenFileWriter::put(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) {
    throw base::IoError(cat(path_.string(), ": cannot write: ", std::strerror(errno)));
  }
}

void TokenFileWriter::put_content(const void* data, std::size_t bytes) {
  hasher_.update(data, bytes);
  put(data, bytes);
}

void TokenFileWriter::add_document(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= info_.vocab_size) {
      throw base::DataError(cat(path_.string(),
                                ": token id ",
                                static_cast<std::uint32_t>(id),
                                " in document ",
                                index_.size(),
                                ", the vocabulary has ids 0 to ",
                                info_.vocab_size - 1));
    }
  }
  index_.push_back(tokens_);
  tokens_ += ids.size();
  if (id_bytes_for(info_.vocab_size) == 2) {
    narrow_.assign(ids.begin(), ids.end());
    put_content(narrow_.data(), narrow_.size() * 2);
  } else {
    put_content(ids.data(), ids.size() * 4);
  }
}

void TokenFileWriter::finish() {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.id_bytes = id_bytes_for(info_.vocab_size);
  header.vocab_size = info_.vocab_size;
  header.vocabulary_hash = info_.vocabulary_hash;
  header.tokens = tokens_;
  header.documents = index_.size();
  const std::uint64_t ids_bytes = tokens_ * header.id_bytes;
  header.index_offset = sizeof(Header) + round_up_8(ids_bytes);
  constexpr char kZeros[8] = {};
  put_content(kZeros, round_up_8(ids_bytes) - ids_bytes);
  index_.push_back(tokens_);
  put_content(index_.data(), index_.size() * sizeof(std::uint64_t));
  index_.pop_back();
  header.content_hash = hasher_.high64();
  const bool written = std::fseek(file_.get(), 0, SEEK_SET) == 0 &&
                       std::fwrite(&header, sizeof(header), 1, file_.get()) == 1 &&
                       std::fflush(file_.get()) == 0 && ::fsync(::fileno(file_.get())) == 0;
  if (!written) throw base::IoError(cat(path_.string(), ": cannot write: ", std::strerror(errno)));
  base::RealFileSystem files;
  files.rename(temporary_, path_);
  file_.reset();
  const std::filesystem::path folder = path_.parent_path();
  files.sync_folder(folder.empty() ? "." : folder);
}

TokenFile::TokenFile(const std::filesystem::path& path) : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  Header h{};
  if (bytes.size() < sizeof(h))
    fail(cat("a token file has at least 64 bytes, this one ", bytes.size()));
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0)
    fail("not a token file (no G2TOKENS at its start)");
  if (h.version != kVersion)
    fail(cat("token file version ", h.version, ", this program reads ", kVersion));
  if (h.vocab_size == 0 || h.vocab_size > kLargestVocabulary)
    fail(cat("vocabulary size ", h.vocab_size, " is out of range"));
  if (h.id_bytes != id_bytes_for(h.vocab_size))
    fail(cat("ids of ", h.id_bytes, " bytes for ", h.vocab_size, " ids"));
  // Every size is compared by division, so that no product of header values can wrap around.
  const std::uint64_t rest = bytes.size() - sizeof(h);
  if (h.tokens > rest / h.id_bytes ||
      h.index_offset != sizeof(h) + round_up_8(h.tokens * h.id_bytes) ||
      h.index_offset > bytes.size() || h.documents >= (bytes.size() - h.index_offset) / 8 ||
      (h.documents + 1) * 8 != bytes.size() - h.index_offset) {
    fail(cat("the file has ",
             bytes.size(),
             " bytes, which does not fit ",
             h.tokens,
             " tokens in ",
             h.documents,
             " documents (cut off?)"));
  }
  info_ = {h.vocab_size, h.vocabulary_hash};
  recorded_hash_ = h.content_hash;
  tokens_ = h.tokens;
  id_bytes_ = h.id_bytes;
  ids_ = bytes.data() + sizeof(h);
  index_ = {reinterpret_cast<const std::uint64_t*>(bytes.data() + h.index_offset), h.documents + 1};
  check_index();
  if (bytes.size() <= kVerifiedBytes) verify();
}

void TokenFile::fail(const std::string& what) const {
  throw base::DataError(cat(path_.string(), ": ", what, "; tokenize the text again"));
}

void TokenFile::check_index() const {
  for (std::size_t i = 0; i < index_.size(); ++i) {
    const bool ascends = i == 0 ? index_[0] == 0 : index_[i] >= index_[i - 1];
    if (!ascends || index_[i] > tokens_)
      fail(cat("document index entry ", i, " is ", index_[i], ", out of order"));
  }
  if (index_.back() != tokens_)
    fail(cat("the document index ends at ", index_.back(), ", not at ", tokens_));
}

std::uint64_t TokenFile::content_hash() const {
  if (recorded_hash_ != 0) return recorded_hash_;
  const auto content = file_.bytes().subspan(sizeof(Header));
  base::Hasher128 hasher;
  hasher.update(content.data(), content.size());
  return hasher.high64();
}

void TokenFile::verify() const {
  constexpr std::int64_t kBlock = 1 << 16;
  std::vector<std::int32_t> block(
      static_cast<std::size_t>(std::min<std::int64_t>(kBlock, tokens())));
  for (std::int64_t begin = 0; begin < tokens(); begin += kBlock) {
    const std::int64_t count = std::min(kBlock, tokens() - begin);
    read(begin, {block.data(), static_cast<std::size_t>(count)});
  }
  if (recorded_hash_ == 0) return;
  const auto content = file_.bytes().subspan(sizeof(Header));
  base::Hasher128 hasher;
  hasher.update(content.data(), content.size());
  if (hasher.high64() != recorded_hash_) {
    fail(cat("content hash ",
             base::hex64(hasher.high64()),
             ", recorded is ",
             base::hex64(recorded_hash_),
             ": the file is damaged"));
  }
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const std::byte* source = ids_ + begin * static_cast<std::int64_t>(id_bytes_);
  if (id_bytes_ == 4) {
    std::memcpy(out.data(), source, out.size() * 4);
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint16_t id = 0;
      std::memcpy(&id, source + 2 * i, 2);
      out[i] = id;
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (static_cast<std::uint32_t>(out[i]) >= info_.vocab_size) {
      fail(cat("token ",
               begin + static_cast<std::int64_t>(i),
               " has id ",
               static_cast<std::uint32_t>(out[i]),
               ", the vocabulary has ids 0 to ",
               info_.vocab_size - 1));
    }
  }
}

bool is_token_file(const std::filesystem::path& path) {
  char start[sizeof(kMagic)] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof(start));
  return std::memcmp(start, kMagic, sizeof(kMagic)) == 0;
}

void import_raw_u32(const std::filesystem::path& raw,
                    const std::filesystem::path& output,
                    std::uint64_t vocab_size,
                    std::int32_t bos) {
  const base::MappedFile file(raw);
  const auto bytes = file.bytes();
  if (bytes.size() % 4 != 0 || bytes.empty()) {
    throw base::DataError(
        cat(raw.string(), ": ", bytes.size(), " bytes; raw u32 ids take a positive multiple of 4"));
  }
  // A mapping starts at a page, so the ids are aligned.
  const std::span<const std::int32_t> ids(reinterpret_cast<const std::int32_t*>(bytes.data()),
                                          bytes.size() / 4);
  TokenFileWriter writer(output, {vocab_size, 0});
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= ids.size(); ++i) {
    if (i < ids.size() && ids[i] != bos) continue;
    writer.add_document(ids.subspan(begin, i - begin));
    begin = i;
  }
  writer.finish();
}

}  // namespace g2::data
