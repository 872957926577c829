# Packages of the system. Required ones stop here with the command that installs them; the optional
# ones (OpenBLAS, SentencePiece) are reported by `gemma2_train --version`.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
pkg_check_modules(SENTENCEPIECE IMPORTED_TARGET sentencepiece)
if(G2_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
