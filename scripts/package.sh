#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds the Debian packages. Of the files in OUT_DIR it replaces only packages of these names.
# Usage: package.sh [BUILD_DIR [OUT_DIR]], by default build/package and its packages/
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
build=$(realpath -m -- "${1:-$root/build/package}")
out=$(realpath -m -- "${2:-$build/packages}")
cd "$root"

cmake --preset package -B "$build"
cmake --build "$build" --target moe_packaged
mkdir -p "$out"
rm -f "$out"/{libmoe0,libmoe0.[0-9]*,libmoe0-dev,moe,moe-cuda}_*.deb
cpack --config "$build/CPackConfig.cmake" -B "$out"
rm -r "$out/_CPack_Packages"
