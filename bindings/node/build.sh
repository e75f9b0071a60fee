#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles build/moe.node against the libmoe that pkg-config finds and the headers of the node in the PATH.
# With the service where pkg-config finds libmoe_serve too, unless MOE_SERVE is 0. CXX, CXXFLAGS and NODE_INCLUDE (the folder with node_api.h) may be set.
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
libraries=moe
serve=
if [ "${MOE_SERVE:-1}" != 0 ] && pkg-config --exists moe_serve; then
  libraries=moe_serve
  serve=-DMOE_NODE_SERVE
fi
mkdir -p build
# shellcheck disable=SC2046,SC2086 # words
"${CXX:-g++}" -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra ${CXXFLAGS:-} $serve -I"$include" src/*.cpp \
  $(pkg-config --cflags --libs $libraries) -o build/moe.node
