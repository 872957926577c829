// Must catch: counts in 32 bits, ids cut to 16 bits, damage read as tokens, half-written files.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "data/token_file.h"
#include "tests/support/support.h"

namespace g2::data {
namespace {

using test::error_of;
using test::TempFolder;
using test::write_text;
using testing::HasSubstr;

TEST(TokenFile, KeepsTheHighestIdOfLargeVocabularies) {
  const TempFolder folder;
  for (const std::uint64_t vocab : {65536ULL, 65537ULL, 256000ULL}) {
    TokenFileWriter writer(folder / "t.tok", {vocab, 7});
    const std::vector<std::int32_t> ids{2, static_cast<std::int32_t>(vocab - 1), 1};
    writer.add_document(ids);
    writer.finish();
    const TokenFile file(folder / "t.tok");
    std::vector<std::int32_t> back(3);
    file.read(0, back);
    EXPECT_EQ(back, ids);
    EXPECT_EQ(file.info().vocabulary_hash, 7U);
  }
}

TEST(TokenFile, RefusesDamage) {
  const TempFolder folder;
  TokenFileWriter writer(folder / "t.tok", {260, 7});
  writer.add_document(std::vector<std::int32_t>{2, 5, 1});
  writer.add_document(std::vector<std::int32_t>{2, 6, 7, 1});
  writer.finish();
  const std::string good = base::read_file(folder / "t.tok");
  EXPECT_NO_THROW(TokenFile(folder / "t.tok"));
  const auto refuses = [&](std::string content, const char* what) {
    write_text(folder / "bad.tok", content);
    EXPECT_THAT(error_of<base::DataError>([&] { TokenFile(folder / "bad.tok"); }), HasSubstr(what));
  };
  for (std::size_t cut = 0; cut < good.size(); ++cut) refuses(good.substr(0, cut), "bad.tok: ");
  const auto with = [&](std::size_t offset, std::uint64_t value, std::size_t bytes) {
    std::string changed = good;
    std::memcpy(changed.data() + offset, &value, bytes);
    return changed;
  };
  refuses(with(0, 'X', 1), "not a token file");
  refuses(with(8, 2, 4), "version 2");
  refuses(with(32, (std::uint64_t{1} << 32) + 7, 8),
          "does not fit");  // a count cut to 32 bits would pass
  refuses(with(32, std::uint64_t{1} << 63, 8), "does not fit");
  refuses(with(40, ~std::uint64_t{0}, 8), "does not fit");
  refuses(with(64, 300, 2), "token 0 has id 300");
  refuses(with(80 + 8, 9, 8), "out of order");
}

std::string two_documents(const TempFolder& folder) {
  TokenFileWriter writer(folder / "t.tok", {260, 7});
  writer.add_document(std::vector<std::int32_t>{2, 5, 1});
  writer.add_document(std::vector<std::int32_t>{2, 6, 7, 1});
  writer.finish();
  return base::read_file(folder / "t.tok");
}

TEST(TokenFile, ContentHashFindsAChangeOfAnyByte) {
  const TempFolder folder;
  const std::string good = two_documents(folder);
  EXPECT_NE(TokenFile(folder / "t.tok").content_hash(), 0U);
  for (std::size_t i = 64; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write_text(folder / "bad.tok", changed);
    EXPECT_THROW(TokenFile(folder / "bad.tok"), base::DataError) << "byte " << i;
  }
  std::string other = good;
  other[56] = static_cast<char>(other[56] ^ 1);
  write_text(folder / "bad.tok", other);
  EXPECT_THAT(error_of<base::DataError>([&] { TokenFile(folder / "bad.tok"); }),
              HasSubstr("bad.tok: content hash "));
}

TEST(TokenFile, WithoutARecordedHashOneIsComputed) {
  const TempFolder folder;
  std::string content = two_documents(folder);
  const std::uint64_t recorded = TokenFile(folder / "t.tok").content_hash();
  content.replace(56, 8, 8, '\0');
  write_text(folder / "t.tok", content);
  EXPECT_EQ(TokenFile(folder / "t.tok").content_hash(), recorded);
}

TEST(TokenFile, TheHashTellsDocumentBoundaries) {
  const TempFolder folder;
  const auto hash = [&](const std::vector<std::vector<std::int32_t>>& documents) {
    TokenFileWriter writer(folder / "h.tok", {260, 7});
    for (const auto& document : documents) writer.add_document(document);
    writer.finish();
    return TokenFile(folder / "h.tok").content_hash();
  };
  EXPECT_EQ(hash({{2, 5, 1}, {2, 1}}), hash({{2, 5, 1}, {2, 1}}));
  EXPECT_NE(hash({{2, 5, 1}, {2, 1}}), hash({{2, 5}, {1, 2, 1}}));
}

TEST(TokenFile, AnUnfinishedOrRefusedFileLeavesNothing) {
  const TempFolder folder;
  {
    TokenFileWriter writer(folder / "t.tok", {260, 7});
    writer.add_document(std::vector<std::int32_t>{2, 5, 1});
    EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{2, 260, 1}), base::DataError);
  }
  for (const std::uint64_t vocab : {std::uint64_t{0}, (std::uint64_t{1} << 31) + 1}) {
    EXPECT_THROW(TokenFileWriter(folder / "t.tok", {vocab, 7}), base::DataError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_of<base::IoError>([&] {
                TokenFileWriter(folder / "none" / "t.tok", {260, 7});
              }),
              HasSubstr("t.tok: cannot create: No such file"));
}

// Within its scope no file of this process grows past `bytes`: a write fails as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(TokenFile, AFullDiskIsOneErrorAndKeepsTheFileOfBefore) {
  const TempFolder folder;
  const std::string before = two_documents(folder);
  const std::vector<std::int32_t> document(100, 9);
  for (const rlim_t space : {0, 64, 4096, 20000, 20480}) {  // 20,200 bytes of ids, then the index
    const FullDisk full(space);
    EXPECT_THAT(error_of<base::IoError>([&] {
                  TokenFileWriter writer(folder / "t.tok", {260, 7});
                  for (int i = 0; i < 101; ++i) writer.add_document(document);
                  writer.finish();
                }),
                HasSubstr("t.tok: cannot write: File too large"))
        << space;
  }
  EXPECT_EQ(base::read_file(folder / "t.tok"), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TokenFile, ImportsRawIdsCutAtBos) {
  const TempFolder folder;
  const std::vector<std::int32_t> raw{2, 10, 11, 2, 12};
  std::string bytes(raw.size() * 4, '\0');
  std::memcpy(bytes.data(), raw.data(), bytes.size());
  write_text(folder / "raw", bytes);
  import_raw_u32(folder / "raw", folder / "t.tok", 32000, 2);
  const TokenFile file(folder / "t.tok");
  EXPECT_EQ(file.documents(), 2);
  EXPECT_EQ(file.document_tokens(0), 3);
  EXPECT_EQ(file.document_tokens(1), 2);
  EXPECT_EQ(file.info().vocabulary_hash, 0U);
  write_text(folder / "odd", "12345");
  EXPECT_THAT(
      error_of<base::DataError>([&] { import_raw_u32(folder / "odd", folder / "o.tok", 9, 2); }),
      HasSubstr("odd: 5 bytes"));
  EXPECT_THROW(import_raw_u32(folder / "raw", folder / "t.tok", 12, 2), base::DataError);
}

}  // namespace
}  // namespace g2::data
