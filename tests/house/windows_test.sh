#!/bin/bash
# SPDX-License-Identifier: MIT
# Compiles the core for Windows, with warnings as errors, by a cross compiler that does not search the host's headers;
# nothing is linked or run. Without MinGW-w64 it says so. Usage: windows_test.sh ROOT
set -euo pipefail
root=$(cd "$1" && pwd)
cross=x86_64-w64-mingw32
command -v $cross-g++-posix >/dev/null || { echo "$cross-g++-posix was not found: nothing was compiled"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Only the headers count: no library is linked to a static one.
cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64 \
  -DCMAKE_C_COMPILER=$cross-gcc-posix -DCMAKE_CXX_COMPILER=$cross-g++-posix -DCMAKE_BUILD_TYPE=None \
  -DMOE_WERROR=ON -DMOE_CONVERT=OFF -DMOE_SERVE=OFF -DMOE_CLI=OFF -DMOE_TESTS=OFF -DMOE_INSTALL=OFF -DMOE_GPU=ON \
  -DMOE_zstd_LIBRARY=zstd -DMOE_pcre2_LIBRARY=pcre2-8 -DMOE_utf8proc_LIBRARY=utf8proc \
  -DMOE_ISAS=scalar -DBUILD_SHARED_LIBS=OFF
grep -q '^MOE_OS:[A-Z]*=windows$' "$folder/CMakeCache.txt"
cmake --build "$folder" --target moe
$cross-nm -C "$folder/lib/libmoe.a" >"$folder/symbols"
grep -q 'T moe_model_open$' "$folder/symbols"
