// Must catch: an existing file overwritten, a descriptor left open by a failure, a symbolic link
// followed while removing a tree.
#include "base/file_system.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/support.h"

namespace g2::base {
namespace {

using testing::HasSubstr;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(RealFileSystem, WritesNewFilesOnly) {
  const test::TempFolder folder;
  RealFileSystem files;
  write_new_file(files, folder / "a", "content");
  EXPECT_EQ(read_file(folder / "a"), "content");
  try {
    write_new_file(files, folder / "a", "other");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/a: cannot create: File exists"));
  }
  EXPECT_EQ(read_file(folder / "a"), "content");
}

TEST(RealFileSystem, UnfinishedFilesAreClosed) {
  const test::TempFolder folder;
  RealFileSystem files;
  const std::size_t before = open_descriptors();
  { const OutputFile file(files, folder / "a", 1 << 20); }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(std::filesystem::file_size(folder / "a"), 0U);  // reserving does not lengthen a file
  EXPECT_THROW(OutputFile(files, folder / "b", std::uint64_t{1} << 62), IoError);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(RealFileSystem, RemovesATreeButFollowsNoLink) {
  const test::TempFolder folder;
  RealFileSystem files;
  files.create_folder(folder / "keep");
  write_new_file(files, folder / "keep/a", "a");
  files.create_folder(folder / "gone");
  files.create_folder(folder / "gone/inner");
  write_new_file(files, folder / "gone/inner/b", "b");
  std::filesystem::create_directory_symlink(folder / "keep", folder / "gone/link");
  remove_tree(files, folder / "gone");
  EXPECT_FALSE(std::filesystem::exists(folder / "gone"));
  EXPECT_TRUE(std::filesystem::exists(folder / "keep/a"));
}

TEST(RealFileSystem, ErrorsNamePathAndReason) {
  const test::TempFolder folder;
  RealFileSystem files;
  const auto error_of = [](auto&& operation) -> std::string {
    try {
      operation();
    } catch (const IoError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of([&] { files.rename(folder / "x", folder / "y"); }),
              testing::AllOf(HasSubstr("/x: cannot rename to"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { files.sync_folder(folder / "x"); }), HasSubstr("cannot open folder"));
  EXPECT_THAT(error_of([&] { files.create_folder(folder.path()); }), HasSubstr("File exists"));
  EXPECT_THAT(error_of([&] { files.free_bytes(folder / "x"); }), HasSubstr("free space"));
  EXPECT_GT(files.free_bytes(folder.path()), 0U);
}

}  // namespace
}  // namespace g2::base
