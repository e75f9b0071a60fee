#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks the matrix products as nvcc compiled them, without a GPU: no kernel may spill or use a stack, the kernels for codes
# must use IMMA, and the others FFMA or IDP.
# Usage: tests/gpu/check_sass.sh [BUILD]: a build with MOE_CUDA=ON, which is build/cuda; for each architecture that it has.
# Exits with 77 where cuobjdump is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
objects=${1:-build/cuda}/kernels/cuda/CMakeFiles/moe_cuda_parts.dir/matmul
command -v cuobjdump >/dev/null || { echo "no cuobjdump: nothing checked"; exit 77; }
[ -d "$objects" ] || { echo "$objects: no such folder; build with MOE_CUDA=ON first" >&2; exit 2; }

# instructions OBJECT PATTERN: every kernel must contain an instruction that matches.
instructions() {
  cuobjdump --dump-sass "$1" | awk -v want="$2" -v file="$1" '
    function ended() { if (name != "" && !found) { print file ": no " want " in " name; bad = 1 } }
    /Function :/ { ended(); name = $3; found = 0 }
    $0 ~ want { found = 1 }
    END { ended(); if (name == "") { print file ": no kernels"; bad = 1 }; exit bad }'
}

# memory OBJECT: no kernel may use a stack, where spilled registers go too, or other local memory.
memory() {
  cuobjdump --dump-resource-usage "$1" | awk -v file="$1" '
    / Function / { name = $2 }
    /REG:/ { ++kernels; if (!/STACK:0 / || !/LOCAL:0 /) { print file ": " name " " $0; ++bad } }
    END { print file ": " kernels " kernels, " kernels - bad " without stack and spills"; exit kernels == 0 || bad > 0 }'
}

failed=0
for part in any few few_groups floats many many_groups; do
  object=$objects/matmul_$part.cu.o
  [ -e "$object" ] || { echo "$object: not built" >&2; exit 2; }
  memory "$object" || failed=1
  case $part in
    few* | many*) instructions "$object" IMMA || failed=1 ;;
    floats) instructions "$object" FFMA || failed=1 ;;
    any) instructions "$object" 'FFMA|IDP' || failed=1 ;;
  esac
done
exit $failed
