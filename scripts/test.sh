#!/usr/bin/env bash
# Builds everything this machine can build and runs every test it can run. From any folder, twice,
# and without a network once the packages are there.
#
#   scripts/test.sh                  # release preset where nvcc is, else cpu; layers, format, ctest
#   scripts/test.sh --sanitizers     # also the asan and tsan presets
#   scripts/test.sh --tidy           # also clang-tidy over src/ (minutes)
#   scripts/test.sh --fuzz SECONDS   # also each fuzz target, SECONDS long
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' scripts/test.sh
}

sanitizers=no tidy=no fuzz_seconds=0
while (( $# )); do
  case "$1" in
    --sanitizers) sanitizers=yes ;;
    --tidy) tidy=yes ;;
    --fuzz)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "test.sh: --fuzz needs a number of seconds" >&2; exit 64; }
      fuzz_seconds=$2
      shift ;;
    --help) usage; exit 0 ;;
    *) echo "test.sh: no option '$1'; see scripts/test.sh --help" >&2; exit 64 ;;
  esac
  shift
done

jobs=$(nproc)
say() { printf '\n== %s\n' "$*"; }

configure() {  # PRESET [CMAKE OPTION...]
  cmake --preset "$@" >"build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log"; return 1; }
}

build_and_test() {  # PRESET
  say "$1: build"
  configure "$1"
  cmake --build "build/$1" --parallel "$jobs"
  say "$1: tests"
  ctest --test-dir "build/$1" --output-on-failure --parallel "$jobs"
}

check_format() {
  command -v clang-format-14 >/dev/null || { echo "skipped: no clang-format-14"; return; }
  find src kernels tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 clang-format-14 --dry-run --Werror
  echo "clang-format: ok"
}

run_fuzz() {
  say "fuzz: build"
  configure fuzz -D CMAKE_CXX_COMPILER=clang++-14
  cmake --build build/fuzz --parallel "$jobs" --target fuzzers
  local target name seeds log
  for target in build/fuzz/tests/fuzz/fuzz_*; do
    [[ -f $target && -x $target ]] || continue
    name=$(basename "$target")
    say "$name: $fuzz_seconds s"
    mkdir -p "build/fuzz/corpus/$name"
    seeds=(tests/fuzz/seeds/"${name#fuzz_}")
    [[ -d ${seeds[0]} ]] || seeds=()
    log=build/fuzz/$name.log
    "$target" -max_total_time="$fuzz_seconds" -print_final_stats=1 -artifact_prefix=build/fuzz/ \
      "build/fuzz/corpus/$name" "${seeds[@]}" >"$log" 2>&1 || { tail -n 60 "$log"; return 1; }
    grep number_of_executed_units "$log"
  done
}

mkdir -p build
scripts/install_deps.sh build test text
if [[ $tidy == yes ]] || (( fuzz_seconds )); then scripts/install_deps.sh clang; fi

preset=cpu
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then preset=release; fi

say "layers and format"
python3 scripts/check_layers.py
check_format
build_and_test "$preset"
if [[ $sanitizers == yes ]]; then
  build_and_test asan
  build_and_test tsan
fi
if [[ $tidy == yes ]]; then
  say "clang-tidy"
  find src -name '*.cpp' -not -path 'src/cuda/*' -print0 |
    xargs -0 -P "$jobs" -n 4 clang-tidy-14 --quiet -p "build/$preset" \
        --extra-arg=-Wno-unknown-warning-option  # the compile commands are those of g++
fi
if (( fuzz_seconds )); then run_fuzz; fi
say "all passed ($preset$([[ $sanitizers == yes ]] && echo ', asan, tsan'))"
