#!/bin/bash
# Unpacks the arm64 builds of the libraries that moe links into a folder of the build tree, for the
# preset aarch64. Changes nothing outside it: no foreign architecture is added, nothing is installed.
# Usage: fetch-arm64-libs.sh FOLDER
set -euo pipefail

PACKAGES=(libzstd-dev libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2)

folder=$1
[ -e "$folder/complete" ] && exit 0
command -v apt-get >/dev/null || { echo "fetch-arm64-libs: needs Debian's apt-get" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder"/apt/{lists/partial,cache/archives/partial}
cd "$folder"
: >apt/status
apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Acquire::Retries=3
  -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache"
  -o "Dir::State::Status=$PWD/apt/status" -o APT::Sandbox::User=)
"${apt[@]}" update
"${apt[@]}" download "${PACKAGES[@]}"
for package in *.deb; do dpkg-deb -x "$package" .; done
rm -rf apt ./*.deb
touch complete
