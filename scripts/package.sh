#!/bin/bash
# Builds the Debian packages. Usage: package.sh [BUILD_DIR [OUT_DIR]], by default build/package and its packages/
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/package}
out=${2:-$build/packages}

cmake --preset package -B "$build"
cmake --build "$build" --target moe_packaged
rm -rf "$out"
mkdir -p "$out"
cpack --config "$build/CPackConfig.cmake" -B "$(cd "$out" && pwd)"
rm -r "$out/_CPack_Packages"
