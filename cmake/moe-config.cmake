# SPDX-License-Identifier: MIT
# find_package(moe) gives moe::moe and, where it was built, moe::moe_convert.
# Linking static libraries takes a C++ linker: project(... LANGUAGES CXX).
include(${CMAKE_CURRENT_LIST_DIR}/moe-targets.cmake)
