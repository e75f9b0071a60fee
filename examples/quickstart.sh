#!/bin/bash
# SPDX-License-Identifier: MIT
# From a fresh clone to text: builds moe and generates a story with the model of this repository.
#   bash examples/quickstart.sh [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  -h | --help) echo "usage: bash examples/quickstart.sh [PROMPT]"; exit 0 ;;
  -*) echo "usage: bash examples/quickstart.sh [PROMPT]" >&2; exit 2 ;;
esac

model=examples/models/stories.moe
prompt=${1:-Once upon a time}
log=build/quickstart.log
mkdir -p build

bash scripts/install-deps.sh build

if ! [ -f build/release/build.ninja ]; then
  echo "Building moe in build/release (a few minutes, once; log in $log) ..." >&2
fi
# Writes the output of the build to the log and, on a terminal, shows its progress: ninja's "[5/135] Building ...".
to_log() {
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    if [ -t 2 ] && [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      printf '\r\033[K%d of %d steps' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" >&2
    fi
  done
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}
: >"$log"
if ! { cmake --preset release -DMOE_TESTS=OFF && cmake --build --preset release; } 2>&1 | to_log; then
  tail -n 40 "$log" >&2
  echo "The build failed; the whole log is in $log" >&2
  exit 1
fi

command=(build/release/bin/moe generate "$model" -p "$prompt" -n 400)
printf 'Running:' >&2
printf ' %q' "${command[@]}" >&2
printf '\n\n' >&2
"${command[@]}"
printf '\nTo run it as moe: export PATH="%s/build/release/bin:$PATH"\n' "$PWD" >&2
