#!/usr/bin/env bash
# Installs what gemma2_train needs and is missing, on Debian 12 or Ubuntu 24.04. Needs root or sudo and
# a package registry only when something is missing.
#
#   scripts/install_deps.sh            # build, test, text, plot
#   scripts/install_deps.sh build text # these groups only
#   scripts/install_deps.sh clang      # clang, clang-tidy: for test.sh --tidy and --fuzz
set -euo pipefail

# Packages of a group. NAME:COMMAND is also satisfied by the command, wherever it came from.
packages() {
  case "$1" in
    build) echo g++:g++ cmake:cmake ninja-build:ninja pkgconf:pkg-config git:git \
                libcli11-dev nlohmann-json3-dev libspdlog-dev libxxhash-dev \
                libopenblas-pthread-dev libsentencepiece-dev ;;
    test)  echo libgtest-dev libgmock-dev libbenchmark-dev python3:python3 \
                clang-format-14:clang-format-14 ;;
    text)  echo bible-kjv:bible python3:python3 ;;
    plot)  echo python3-matplotlib ;;
    clang) echo clang-14:clang++-14 libclang-rt-14-dev clang-tidy-14:clang-tidy-14 ;;
    *)     echo "install_deps.sh: no group '$1'; groups: build test text plot clang" >&2; return 64 ;;
  esac
}

installed() {  # NAME or NAME:COMMAND
  [[ $1 == *:* ]] && command -v "${1#*:}" >/dev/null && return 0
  [[ $(dpkg-query -W -f='${db:Status-Status}' "${1%%:*}" 2>/dev/null) == installed ]]
}

groups=("$@")
(( ${#groups[@]} )) || groups=(build test text plot)
missing=()
for group in "${groups[@]}"; do
  list=$(packages "$group")
  for package in $list; do
    installed "$package" || missing+=("${package%%:*}")
  done
done
(( ${#missing[@]} )) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "install_deps.sh: no apt-get here; install by hand what Debian calls: ${missing[*]}" >&2
  exit 69
fi
root=()
if (( EUID != 0 )); then
  command -v sudo >/dev/null || {
    echo "install_deps.sh: run as root: apt-get install ${missing[*]}" >&2
    exit 69
  }
  root=(sudo)
fi
echo "install_deps.sh: installing ${missing[*]}"
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
