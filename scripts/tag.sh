#!/bin/bash
# SPDX-License-Identifier: MIT
# Tags the commit that is checked out as a release, vX.Y.Z, which scripts/release.sh then builds. The version is
# that of CMakeLists.txt. Refuses a tree with changes, a header or CHANGELOG.md with another version, a version
# that CHANGELOG.md does not date, and a tag that exists. --check: says what it would do. Usage: tag.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1-}" in
  "") check= ;;
  --check) check=1 ;;
  *) echo "usage: tag.sh [--check]" >&2; exit 2 ;;
esac
[ $# -le 1 ] || { echo "usage: tag.sh [--check]" >&2; exit 2; }

refuse() { echo "tag.sh: $1" >&2; exit 1; }
part() { sed -n "s/^#define MOE_VERSION_$1 \([0-9]*\)$/\1/p" include/moe_c.h; }
version=$(sed -n 's/^project(moe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ -n "$version" ] || refuse "CMakeLists.txt: expected project(moe VERSION X.Y.Z"
changes=$(git status --porcelain)
[ -z "$changes" ] || refuse "the tree has changes; commit or remove them first:"$'\n'"$changes"
header=$(part MAJOR).$(part MINOR).$(part PATCH)
[ "$header" = "$version" ] || refuse "include/moe_c.h: expected version $version as in CMakeLists.txt, found $header"
heading=$(grep -m 1 '^## ' CHANGELOG.md || true)
[[ "$heading" =~ ^"## $version - "20[0-9]{2}-[0-9]{2}-[0-9]{2}$ ]] ||
  refuse "CHANGELOG.md: expected its first heading to be '## $version - YYYY-MM-DD', found '$heading'"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || refuse "the tag v$version exists already"

# The message of the tag: what CHANGELOG.md says of the version.
message=$(awk '/^## /{ if (seen++) exit; next } seen' CHANGELOG.md)
[ -n "${message//[[:space:]]/}" ] || refuse "CHANGELOG.md: says nothing of $version"
if [ -n "$check" ]; then
  echo "would tag $(git rev-parse --short HEAD) as v$version"
  exit 0
fi
git tag -a "v$version" --cleanup=verbatim -m "moe $version" -m "$message"
echo "tagged $(git rev-parse --short HEAD) as v$version; publish it with git push origin v$version"
