# SPDX-License-Identifier: MIT
# find_package(moe) gives moe::moe and, where they were built, moe::moe_convert and moe::moe_serve.
# Linking the static moe_convert and moe_serve takes a C++ linker: project(... LANGUAGES CXX).
include(${CMAKE_CURRENT_LIST_DIR}/moe-targets.cmake)
