#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs the Debian packages that a build needs, unless they are there already.
# Usage: install-deps.sh build|test|package|all   (each of the others includes build; all, everything)
set -euo pipefail

BUILD=(
  cmake ninja-build g++             # the compiler is gcc 12 or newer
  libflatbuffers-dev flatbuffers-compiler
  libzstd-dev libxxhash-dev
  libpcre2-dev libutf8proc-dev      # tokenizers
  nlohmann-json3-dev libcli11-dev   # converter and command
  libedit-dev                       # lines typed at a terminal
  libmicrohttpd-dev                 # moe serve
  pkg-config                        # programs that use libmoe
)
TEST=(
  libgtest-dev libbenchmark-dev
  clang libclang-rt-dev llvm lld    # the sanitizers; llvm-symbolizer names lines in their reports
  python3 binutils
  python3-numpy python3-pytest mypy # the Python binding
  python3-pycparser                 # reads moe_c.h for the bindings
  abigail-tools                     # the ABI check
  locales                           # a decimal comma
  curl                              # a document that asks a server
)
PACKAGE=(
  dpkg-dev file                     # what a package depends on
  python3-venv                      # wheels
)
ALL=(
  clang-format
  zsh fish groff                    # completion and the man page
  g++-aarch64-linux-gnu g++-arm-linux-gnueabihf g++-riscv64-linux-gnu  # for tests on other CPUs
  qemu-user                         # runs those
  g++-mingw-w64-x86-64-posix        # compiles the core for Windows
  make xz-utils                     # zstd for riscv64, from its source
  googletest                        # its source, to cross-compile it
  cargo rustc golang-go             # the Rust and Go bindings
  chromium                          # tests the page of moe serve
)
# The Node binding. A Node from elsewhere has its headers, and Debian's would take its place.
if ! command -v node >/dev/null || ! [ -e "$(dirname "$(readlink -f "$(command -v node)")")/../include/node/node_api.h" ]; then
  ALL+=(nodejs libnode-dev)
fi

case "${1:-build}" in
  build) wanted=("${BUILD[@]}") ;;
  test) wanted=("${BUILD[@]}" "${TEST[@]}") ;;
  package) wanted=("${BUILD[@]}" "${PACKAGE[@]}") ;;
  all) wanted=("${BUILD[@]}" "${TEST[@]}" "${PACKAGE[@]}" "${ALL[@]}") ;;
  *) echo "usage: install-deps.sh build|test|package|all" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system: nothing was installed. Needed are the equivalents of:" >&2
  echo "  ${wanted[*]}" >&2
  exit 0  # they may be there; configuring names what is not
fi

installed=$'\n'$(dpkg-query -W -f='${db:Status-Status} ${Package} .\n')
missing=()
for package in "${wanted[@]}"; do
  [[ $installed == *$'\n'"installed $package ."* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Packages are missing, and neither root nor sudo is at hand. As root, run:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
"${apt[@]}" update >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2
