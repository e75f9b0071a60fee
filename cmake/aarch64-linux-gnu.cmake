# SPDX-License-Identifier: MIT
# Cross-compiles for 64-bit ARM with Debian's g++-aarch64-linux-gnu.
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(MOE_CROSS aarch64-linux-gnu)
set(MOE_CROSS_DEBIAN arm64)
set(MOE_CROSS_QEMU qemu-aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
