# Build options, and g2_flags: the only target that names warnings, the standard or sanitizers.
option(G2_TESTS "Build tests and benchmarks" ON)
option(G2_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(G2_CUDA "Build the CUDA backend when a toolkit is found" ON)
set(G2_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, comma separated")
set(G2_CPU_ARCH "x86-64-v3" CACHE STRING "-march of src/cpu on x86-64 (checked at start-up); empty: the compiler's default")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(G2_CCACHE ccache)
if(G2_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${G2_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${G2_CCACHE})
endif()

add_library(g2_flags INTERFACE)
target_compile_features(g2_flags INTERFACE cxx_std_20)
target_compile_options(g2_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Werror -fno-math-errno>
  # g++ 12 reports std::string operator+ falsely (GCC bug 105651)
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_include_directories(g2_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
if(G2_SANITIZE)
  target_compile_options(g2_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${G2_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(g2_flags INTERFACE -fsanitize=${G2_SANITIZE})
endif()

if(G2_FUZZ)  # coverage in every library, the fuzzer's main only in the targets of tests/fuzz
  target_compile_options(g2_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

# g2_library(name SOURCES ... LINKS ...): one static library a folder.
function(g2_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC g2_flags ${ARG_LINKS})
endfunction()

# g2_test(name LABEL cpu SOURCES ... LINKS ...): one test executable, one ctest entry a test case.
function(g2_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} g2_test_support GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL STREQUAL "gpu")  # one at a time; without a GPU skipped, not passed
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK gpu
      SKIP_REGULAR_EXPRESSION "Skipped\nno CUDA device")
  endif()
endfunction()
