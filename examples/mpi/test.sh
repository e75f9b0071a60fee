#!/bin/bash
# SPDX-License-Identifier: MIT
# Links experts.c with a build of the library and runs it on 1, 2, 3 and 4 ranks of this machine: every row
# must have the bits that one process computes, for several routers and weight formats.
# Usage: examples/mpi/test.sh BUILD_DIR       (Debian: apt install libopenmpi-dev openmpi-bin)
set -euo pipefail
build=$(realpath "${1:?usage: examples/mpi/test.sh BUILD_DIR}")
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
ranks() { mpirun "${as_root[@]}" --oversubscribe -n "$@"; }
compile() {
  mpicc -std=c99 -O2 -Wall -Wextra -Werror "$1" -I../../include -L"$build/lib" \
    -Wl,-rpath,"$build/lib" -lmoe -lm -o "$2"
}

compile experts.c "$folder/experts"
while read -r router weights; do
  for n in 1 2 3 4; do
    ranks $n "$folder/experts" "$router" "$weights" 301 2>/dev/null </dev/null
  done | uniq -c # one line, if the output is the same for every number of ranks
done <<'END' | tee "$folder/seen"
topk:1 f32
topk:2,renormalised f32
topk:2,renormalised int8
topk:2,renormalised ternary2
threshold:0.9 ternary2
sigmoid:4 int8
END
[ "$(grep -c '^ *4 .* 0 rows differ$' "$folder/seen")" -eq 6 ]

# Adding experts in another order gives other bits, which the comparison must detect.
sed 's/for (int p = 0; p < routing->begin\[kExperts\]; ++p)/for (int p = routing->begin[kExperts]; p-- > 0;)/' \
  experts.c >"$folder/backwards.c"
if cmp -s experts.c "$folder/backwards.c"; then
  echo "the loop of combine() was not found in experts.c" >&2
  exit 1
fi
compile "$folder/backwards.c" "$folder/backwards"
ranks 2 "$folder/backwards" >"$folder/seen" 2>/dev/null || true
echo "In descending order of experts:"
grep '[1-9][0-9]* rows differ$' "$folder/seen"
