#!/bin/bash
# SPDX-License-Identifier: MIT
# Compares the ABI of libmoe.so, libmoe_convert.so and libmoe_serve.so with the committed dumps (x86-64, gcc, release).
# Usage: abi.sh check|renew [BUILD_DIR]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${2:-$root/build/release}

dump() {  # only what moe_c.h declares, without local paths
  abidw --headers-dir "$root/include" --drop-private-types --no-comp-dir-path --no-corpus-path \
    --no-show-locs --exported-interfaces-only --no-elf-needed "$1" | sed -E "s#'($root/|\.\./\.\./)#'#"
}

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for name in libmoe libmoe_convert libmoe_serve; do
  dump "$build/lib/$name.so" >"$fresh/$name.abi"
  if [ "$1" = renew ]; then
    cp "$fresh/$name.abi" "$here/$name.abi"
    echo "wrote $here/$name.abi"
  elif ! abidiff "$here/$name.abi" "$fresh/$name.abi"; then
    echo "The ABI of $name changed. After a deliberate addition: tests/house/abi.sh renew" >&2
    exit 1
  fi
done
