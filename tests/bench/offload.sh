#!/bin/bash
# SPDX-License-Identifier: MIT
# Decode from disk under memory caps, as a share of the bound 1 / max(bytes read / disk speed, compute time), both
# measured in the same run. Experts are read only when they are needed (--lazy). Run it on an idle machine.
#   [SHAPES="NAME ..."] tests/bench/offload.sh MOE TRACE.csv FOLDER
# MOE: the command; TRACE.csv: a routing trace (docs/traces.md); FOLDER: on the disk to measure, with room for the models (16 GB).
# SHAPES: names from examples/shapes.md, instead of three large ones.
# peers/memory_limit.py compares with llama.cpp through mmap.
set -euo pipefail
moe=$1 trace=$2 folder=$3
here=$(dirname "$0")

# Prints one line for one memory cap. Repetitions alternate between caps, so that a slow minute affects all of them.
run() {
  "$moe" bench "$1" -p 32 -n 128 -r 1 --lazy --routing "$trace" --json "${@:3}" | python3 -c "
import json, sys
j = json.load(sys.stdin)
print('%s: %.1f tokens/s, %.1f %% found, %.1f MB read a token, %.0f %% waiting, disk %.2f GB/s, %.0f %% of the bound, prompt read %.0f MB, peak %.1f of %.1f MB' % (
    sys.argv[1], j['decode_tokens_per_s'], 100 * j['found_in_memory'], j['decode_read_bytes_per_token'] / 1e6, 100 * j['decode_wait_share'],
    (j['disk_bytes_per_s'] or 0) / 1e9, 100 * (j['share_of_bound'] or 0),
    j['prefill_read_bytes'] / 1e6, j['peak_rss_bytes'] / 1e6, j['memory_cap_bytes'] / 1e6))" "$2"
}

cap_for() {  # FILE PERCENT: the cap that holds this share of the experts and everything else
  "$moe" inspect "$1" --json --memory 100T --context 128 | python3 -c "
import json, sys
p = json.load(sys.stdin)['plan']
print(p['least_cap_bytes'] + (p['needed_bytes'] - p['least_cap_bytes']) * $2 // 100)"
}

for shape in ${SHAPES:-olmoe-1b-7b maple-20b-a1b qwen3-30b-a3b}; do
  model=$folder/$shape.moe
  [ -e "$model" ] || "$moe" bench --synthetic $shape --save "$model"
  echo "== $shape, $(($(stat -c %s "$model") / 1000000)) MB"
  for repetition in 1 2 3; do
    for percent in 12 25 50; do
      run "$model" "$percent % direct" --memory "$(cap_for "$model" $percent)" --io direct
    done
    run "$model" "50 % buffered" --memory "$(cap_for "$model" 50)" --io buffered
    [ $shape = olmoe-1b-7b ] && run "$model" "resident"
  done
  python3 "$here/memory_cap.py" "$moe" --model "$model"
done
