#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes a release in dist/ of the tag that is checked out: Debian packages, the Python wheel, the source, and
# their SHA-256 sums, built from nothing. Refuses a tree that is not that tag's. --cuda: also the package moe-cuda,
# by nvcc; --aarch64: also the wheel for 64-bit ARM. Usage: release.sh [--cuda] [--aarch64]
set -euo pipefail
cd "$(dirname "$0")/.."
cuda=OFF
arm=
for option; do
  case "$option" in
    --cuda) cuda=ON ;;
    --aarch64) arm=1 ;;
    *) echo "usage: release.sh [--cuda] [--aarch64]" >&2; exit 2 ;;
  esac
done

refuse() { echo "release.sh: $1" >&2; exit 1; }
version=$(sed -n 's/^project(moe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
changes=$(git status --porcelain)
[ -z "$changes" ] || refuse "the tree has changes; commit or remove them first:"$'\n'"$changes"
git tag --points-at HEAD | grep -qxF "v$version" ||
  refuse "expected HEAD to have the tag v$version, found: $(git tag --points-at HEAD | paste -sd' ' | grep . || echo none)"
[ ! -e dist ] || refuse "dist/ is there already; move it away"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) # the date of everything in it
export SOURCE_DATE_EPOCH
rm -rf build/package build/wheel
cmake --preset package "-DMOE_CUDA=$cuda"
[ $cuda = OFF ] || grep -q moe-cuda build/package/CPackConfig.cmake || refuse "--cuda: expected nvcc of CUDA 12 or newer"
bash scripts/package.sh
bash scripts/wheel.sh
[ -z "$arm" ] || bash scripts/wheel.sh --aarch64
mkdir dist
cp build/package/packages/*.deb build/wheel/dist/*"-$version-"*.whl dist
git archive --prefix="moe-$version/" -o "dist/moe-$version.tar.gz" HEAD
(cd dist && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
