#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the matrix products as nvcc compiles them, without a GPU: no kernel may spill or use a stack, and
# if cuobjdump is found, the kernels for codes must use IMMA and the others FFMA or IDP.
# Usage: tests/gpu/check_sass.sh [architecture...]; exits with 77 if there is no nvcc.
set -eu
cd "$(dirname "$0")/../.."
command -v nvcc >/dev/null || { echo "no nvcc: nothing checked"; exit 77; }
lists=build/release/generated  # headers generated from the lists
[ -e "$lists/quant/all.h" ] || cmake --preset release >/dev/null
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ $# -gt 0 ] || set -- sm_80 sm_86 sm_89 sm_90a
objdump=$(command -v cuobjdump || true)
[ -n "$objdump" ] || echo "no cuobjdump: instructions are not checked"

# expect FILE INSTRUCTION: every kernel of the object file must contain the instruction.
expect() {
  [ -n "$objdump" ] || return 0
  "$objdump" --dump-sass "$1" | awk -v want="$2" -v file="$1" '
    /Function :/ { if (name != "" && !found) { print file ": no " want " in " name; bad = 1 }
                   name = $3; found = 0 }
    $0 ~ want { found = 1 }
    END { if (name != "" && !found) { print file ": no " want " in " name; bad = 1 }
          if (name == "") { print file ": no kernels"; bad = 1 }
          exit bad }'
}

# compile PART ARCHITECTURE: compiles one file, with ptxas's report beside the object.
compile() {
  nvcc -std=c++20 -I. -I"$lists" -arch="$2" -fmad=false -Xptxas -v -c "kernels/cuda/matmul/matmul_$1.cu" \
    -o "$out/matmul_$1.$2.o" >"$out/$1.$2.log" 2>&1
}

failed=0
parts="any few few_groups floats many many_groups"
for arch in "$@"; do
  for part in $parts; do compile "$part" "$arch" & done
  wait
  for part in $parts; do
    object="$out/matmul_$part.$arch.o" log="$out/$part.$arch.log"
    [ -e "$object" ] || { cat "$log"; exit 1; }
    kernels=$(grep -c 'bytes stack frame' "$log" || true)
    clean=$(grep -c ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$log" || true)
    echo "$arch matmul_$part: $kernels kernels, $clean without stack and spills"
    [ "$kernels" -gt 0 ] && [ "$kernels" -eq "$clean" ] || failed=1
    case $part in
      few* | many*) expect "$object" IMMA || failed=1 ;;
      floats) expect "$object" FFMA || failed=1 ;;
      any) expect "$object" 'FFMA|IDP' || failed=1 ;;
    esac
  done
done
exit $failed
