// The fuzzer's bytes as a file, for readers that take a path.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace g2::fuzz {

inline std::filesystem::path write_input(const std::uint8_t* data,
                                         std::size_t size,
                                         const char* extension) {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("gemma2_fuzz_" + std::to_string(::getpid()) + extension);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return path;
}

}  // namespace g2::fuzz
