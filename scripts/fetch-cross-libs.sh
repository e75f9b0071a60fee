#!/bin/bash
# SPDX-License-Identifier: MIT
# Unpacks the libraries that moe links, for another architecture, into a folder of the build tree: for
# the presets aarch64, armhf and riscv64. Changes nothing outside it: no foreign architecture is added,
# nothing is installed. Debian 12 has no riscv64: there zstd is built from Debian's source package.
# With PACKAGE: these packages instead, without those that they depend on.
# Usage: fetch-cross-libs.sh arm64|armhf|riscv64 FOLDER [PACKAGE...]
set -euo pipefail

usage="usage: fetch-cross-libs.sh arm64|armhf|riscv64 FOLDER [PACKAGE...]"
[ $# -ge 2 ] || { echo "$usage" >&2; exit 2; }
case "$1" in
  arm64) packages=(libzstd-dev libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2) ;;
  armhf) packages=(libzstd-dev) ;;
  riscv64) packages=() ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
architecture=$1
folder=$2
[ $# -eq 2 ] || packages=("${@:3}")
[ -e "$folder/complete" ] && exit 0
command -v apt-get >/dev/null || { echo "fetch-cross-libs: needs Debian's apt-get" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder"/apt/{lists/partial,cache/archives/partial}
cd "$folder"
: >apt/status
apt=(apt-get -q -o Acquire::Retries=3 -o "Dir::State::Lists=$PWD/apt/lists"
  -o "Dir::Cache=$PWD/apt/cache" -o "Dir::State::Status=$PWD/apt/status" -o APT::Sandbox::User=)

if [ ${#packages[@]} -gt 0 ]; then
  apt+=(-o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture")
  "${apt[@]}" update || true  # a list that is missing shows when a package is not found
  "${apt[@]}" download "${packages[@]}"
  for package in *.deb; do dpkg-deb -x "$package" .; done
else
  # The system's own lists, for sources instead of programs.
  mkdir apt/parts
  for list in /etc/apt/sources.list.d/*.sources; do
    [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"apt/parts/${list##*/}"
  done
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >apt/sources.list 2>/dev/null || : >apt/sources.list
  apt+=(-o "Dir::Etc::SourceList=$PWD/apt/sources.list" -o "Dir::Etc::SourceParts=$PWD/apt/parts")
  "${apt[@]}" update || true  # a list that is missing shows when a package is not found
  # A mirror may list a version that it does not have yet: the one before does as well.
  versions=$(apt-cache "${apt[@]:2}" showsrc --only-source libzstd | sed -n 's/^Version: //p' | sort -ruV)
  for version in $versions; do
    "${apt[@]}" source --download-only "libzstd=$version" && break
    rm -f libzstd_*
  done
  compgen -G "libzstd_*.orig.tar.xz" >/dev/null || { echo "fetch-cross-libs: no source of libzstd could be downloaded" >&2; exit 1; }
  mkdir zstd
  tar -xf libzstd_*.orig.tar.xz -C zstd --strip-components 1
  make -C zstd/lib -j "$(nproc)" libzstd.a ZSTD_LEGACY_SUPPORT=0 CC="$architecture-linux-gnu-gcc" AR="$architecture-linux-gnu-ar"
  mkdir -p usr/include usr/lib
  cp zstd/lib/zstd.h zstd/lib/zstd_errors.h usr/include
  cp zstd/lib/libzstd.a usr/lib
  rm -rf zstd libzstd_*
fi
rm -rf apt ./*.deb
touch complete
