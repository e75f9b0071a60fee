#!/bin/bash
# Makes a release in dist/ of the tag that is checked out: Debian packages, the Python wheel, the source, and
# their SHA-256 sums, built from nothing. Refuses a tree that is not that tag's. Usage: release.sh
set -euo pipefail
cd "$(dirname "$0")/.."

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
bash scripts/package.sh
bash scripts/wheel.sh
mkdir dist
cp build/package/packages/*.deb build/wheel/dist/*"-$version-"*.whl dist
git archive --prefix="moe-$version/" -o "dist/moe-$version.tar.gz" HEAD
(cd dist && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
