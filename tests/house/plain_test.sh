#!/bin/bash
# SPDX-License-Identifier: MIT
# Library and command as a packager builds them, without a preset. Each builds, and its command gives the text of another
# build's. Without further arguments that is Release by gcc and make; Debug-gcc, MinSizeRel-clang and the like are for a
# change that could matter there, and build the converter too. The presets compile RelWithDebInfo (release; the library by
# clang) and MinSizeRel (static and embedded, without the converter), and asan and tsan without optimisation of command,
# converter and service.
# Usage: plain_test.sh ROOT OTHER_COMMAND [TYPE-COMPILER...]
set -euo pipefail
root=$(cd "$1" && pwd)
other=$(realpath "$2")
shift 2
[ $# -gt 0 ] || set -- Release-gcc
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
story() { "$1" generate "$root/examples/models/stories.moe" -p "Once upon a time" -n 8; }
expected=$(story "$other")
TIMEFORMAT='%R s, cpu %U s'

for build; do
  echo "== $build"
  # Other instruction sets compile the same text, and the command's code is optimised elsewhere.
  options=(-DCMAKE_BUILD_TYPE="${build%-*}" -DMOE_TESTS=OFF "-DMOE_ISAS=avx2;neon_dotprod;scalar" -DMOE_QUICK_BUILD=ON -DMOE_UNITY_CORE=ON)
  # The presets build the converter with each compiler.
  if [ "$build" = Release-gcc ]; then options+=(-DMOE_CONVERT=OFF); else options+=(-G Ninja); fi
  [[ $build == *-gcc ]] || options+=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++)
  cmake -S "$root" -B "$folder/build" "${options[@]}" >/dev/null
  time cmake --build "$folder/build" -j "$(nproc)" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
  grep -A 3 'warning:' "$folder/log" || true # shown; compilers other than those of the presets may have some
  found=$(story "$folder/build/bin/moe")
  [ "$found" = "$expected" ] || { echo "expected: $expected"; echo "found: $found"; exit 1; }
  rm -rf "$folder/build"
done
