#!/bin/bash
# SPDX-License-Identifier: MIT
# Library, converter and command as a packager builds them, without a preset: every build type, by gcc and by clang. Each
# builds, and its command gives the text of another build's. The release preset has gcc's
# RelWithDebInfo, and the clang preset clang's. Usage: plain_test.sh ROOT OTHER_COMMAND [TYPE-COMPILER...]
set -euo pipefail
root=$(cd "$1" && pwd)
other=$(realpath "$2")
shift 2
[ $# -gt 0 ] || set -- Release-gcc MinSizeRel-gcc Debug-gcc Release-clang MinSizeRel-clang Debug-clang
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
story() { "$1" generate "$root/examples/models/stories.moe" -p "Once upon a time" -n 8; }
expected=$(story "$other")

for build; do
  echo "== $build"
  options=(-DCMAKE_BUILD_TYPE="${build%-*}" -DMOE_TESTS=OFF)
  case $build in
    Release-gcc) ;; # exactly as it is typed
    *-gcc) options+=(-G Ninja "-DMOE_ISAS=scalar;avx2;neon_dotprod") ;; # other instruction sets compile the same text
    *-clang)
      options+=(-G Ninja "-DMOE_ISAS=scalar;avx2;neon_dotprod" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++) ;;
  esac
  cmake -S "$root" -B "$folder/build" "${options[@]}" >/dev/null
  cmake --build "$folder/build" -j "$(nproc)" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
  grep -A 3 'warning:' "$folder/log" || true # shown; compilers other than those of the presets may have some
  found=$(story "$folder/build/bin/moe")
  [ "$found" = "$expected" ] || { echo "expected: $expected"; echo "found: $found"; exit 1; }
  rm -rf "$folder/build"
done
