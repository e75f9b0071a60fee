#!/bin/bash
# SPDX-License-Identifier: MIT
# moe as a subdirectory of another project, or fetched by it, with static libraries; and the installed static libraries,
# linked with pkg-config --static and with find_package(moe). It is the one build of type Release, by gcc and make as a
# packager's: an example linked with it generates the text of OTHER, another build's. Usage: subproject_test.sh ROOT OTHER
set -euo pipefail

root=$(cd "$1" && pwd)
other=$(realpath "$2")
here=$root/tests/house
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
version=$(sed -n 's/^project(moe VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")

echo "== add_subdirectory"
cmake -G "Unix Makefiles" -S "$here/parent" -B "$folder/build" -DMOE_SOURCE="$root" -DCMAKE_BUILD_TYPE=Release \
  "-DMOE_ISAS=avx2;neon_dotprod;scalar" -DMOE_CONVERT=OFF -DMOE_QUICK_BUILD=ON >/dev/null
cmake --build "$folder/build" -j "$(nproc)"
"$folder/build/parent" "$version"
cmake --install "$folder/build" --prefix "$folder/nothing" >/dev/null
[ ! -e "$folder/nothing" ] || { find "$folder/nothing"; exit 1; }

echo "== FetchContent"
cmake -G Ninja -S "$here/parent" -B "$folder/fetched" -DMOE_SOURCE="$root" -DCMAKE_BUILD_TYPE=MinSizeRel \
  -DMOE_COMMIT="$(git -C "$root" rev-parse HEAD)" -DMOE_ISAS=scalar -DMOE_CONVERT=OFF -DMOE_SERVE=OFF >/dev/null
cmake --build "$folder/fetched" --target moe_base # the other targets are built above

echo "== static, installed"
cmake -DMOE_INSTALL=ON "$folder/build" >/dev/null
cmake --build "$folder/build" >/dev/null
prefix=$folder/prefix
cmake --install "$folder/build" --prefix "$prefix" >/dev/null
if [ ! -e "$prefix/lib/libmoe.a" ] || [ -e "$prefix/lib/libmoe.so" ]; then ls -R "$prefix"; exit 1; fi

grep -q '^Parts of libflatbuffers-dev are linked in' "$prefix"/share/doc/*/LICENSE

echo "== pkg-config --static"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# shellcheck disable=SC2046
cc -std=c99 "$here/consumer/main.c" -o "$folder/main" $(pkg-config --cflags --libs --static moe)
"$folder/main" "$version"
# shellcheck disable=SC2046
cc -std=c99 "$root/examples/generate.c" -o "$folder/generate" $(pkg-config --cflags --libs --static moe)
story=("$root/examples/models/stories.moe" "Once upon a time")
"$other" "${story[@]}" >"$folder/expected"
"$folder/generate" "${story[@]}" | diff "$folder/expected" -

echo "== pkg-config --static, unoptimised: the C++ library is named"
cmake -G Ninja -S "$root" -B "$folder/debug" -DCMAKE_BUILD_TYPE=Debug -DBUILD_SHARED_LIBS=OFF -DMOE_ISAS=scalar >/dev/null
grep -q '^Libs.private: .* -lstdc++' "$folder/debug/pkgconfig/moe.pc"
if grep -q stdc++ "$prefix/lib/pkgconfig/moe.pc"; then exit 1; fi

echo "== find_package"
cmake -S "$here/consumer" -B "$folder/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DLANGUAGES="C;CXX" \
  -DCONVERT=OFF >/dev/null
cmake --build "$folder/consumer" >/dev/null
"$folder/consumer/consumer" "$version"
