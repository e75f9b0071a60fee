#!/bin/sh
# Compiles build/moe.node against the libmoe that pkg-config finds and the headers of the node in the PATH.
# CXX, CXXFLAGS and NODE_INCLUDE (the folder with node_api.h) may be set.
set -eu
cd "$(dirname "$0")"
beside=$(dirname "$(dirname "$(node -p process.execPath)")")/include/node
include=${NODE_INCLUDE:-$beside}
mkdir -p build
# shellcheck disable=SC2046,SC2086 # words
"${CXX:-g++}" -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra ${CXXFLAGS:-} -I"$include" src/moe.cpp \
  $(pkg-config --cflags --libs moe) -o build/moe.node
