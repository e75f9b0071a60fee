#!/bin/bash
# The command of the preset static is small enough, needs no shared library and runs. Usage: static_test.sh ROOT BUILD_DIR
set -euo pipefail
here=$(dirname "$0")
moe=$2/bin/moe
python3 -B "$here/size_test.py" "$moe" 3550000
if readelf -l "$moe" | grep INTERP; then
  echo "$moe needs shared libraries" >&2
  exit 1
fi
text=$("$moe" generate "$1/examples/models/stories.moe" -p "Once upon a time" -n 8 2>/dev/null)
echo "generated: $text"
[ -n "$text" ]
rc=0
"$moe" convert a b 2>/dev/null || rc=$?
[ $rc -eq 2 ]
