#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs a build into a temporary folder and builds a C99 program against it, once with pkg-config and
# once with find_package(moe). Usage: install_test.sh BUILD_DIR
set -euo pipefail

build=$1
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/first" >/dev/null
mv "$folder/first" "$folder/moved" # an installation must be relocatable
prefix=$folder/moved
"$prefix/bin/moe" --version
"$prefix/bin/moe" man | cmp - "$prefix/share/man/man1/moe.1"
for file in bash-completion/completions/moe zsh/site-functions/_moe fish/vendor_completions.d/moe.fish; do
  [ -s "$prefix/share/$file" ] || { ls -R "$prefix/share"; exit 1; }
done

echo "== licences"
for package in libzstd-dev libflatbuffers-dev libxxhash-dev nlohmann-json3-dev libcli11-dev; do
  grep -q "^Parts of $package are linked in. Its licence:" "$prefix/share/doc/moe/LICENSE" || {
    echo "no licence of $package in $(find "$prefix/share/doc" -type f)" >&2
    exit 1
  }
done

echo "== stripped"
for library in "$prefix"/lib/lib*.so; do
  if readelf -S "$library" | grep -q '\.debug_info'; then
    echo "$library has debug information" >&2
    exit 1
  fi
done

echo "== run paths"
python3 -B "$here/lint_runpath.py" "$prefix"

echo "== pkg-config"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
for module in moe moe_convert moe_serve; do
  # shellcheck disable=SC2046
  cc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$here/consumer/main.c" -o "$folder/$module" \
    $(pkg-config --cflags --libs $module)
  LD_LIBRARY_PATH=$prefix/lib "$folder/$module" "$(pkg-config --modversion $module)"
done

echo "== find_package"
cmake -S "$here/consumer" -B "$folder/consumer" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$folder/consumer" >/dev/null
"$folder/consumer/consumer" "$(pkg-config --modversion moe)"
