#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles build/moe.node against the libmoe that pkg-config finds and the headers of the node in the PATH.
# CXX, CXXFLAGS and NODE_INCLUDE (the folder with node_api.h) may be set.
set -eu
cd "$(dirname "$0")"
stop() {
  echo "build.sh: $1" >&2
  exit 1
}
command -v node >/dev/null || stop "node is not in the PATH"
beside=$(dirname "$(dirname "$(node -p process.execPath)")")/include/node
include=${NODE_INCLUDE:-$beside}
[ -f "$include/node_api.h" ] || stop "$include/node_api.h is missing (Debian: libnode-dev); NODE_INCLUDE names its folder"
mkdir -p build
# shellcheck disable=SC2046,SC2086 # words
"${CXX:-g++}" -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra ${CXXFLAGS:-} -I"$include" src/*.cpp \
  $(pkg-config --cflags --libs moe) -o build/moe.node
