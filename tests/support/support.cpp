#include "tests/support/support.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace g2::test {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "gemma2_test_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::filesystem::path source_root() {
  return G2_SOURCE_ROOT;
}

}  // namespace g2::test
