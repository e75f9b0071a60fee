# SPDX-License-Identifier: MIT
# Cross-compiles for 32-bit ARM with Debian's g++-arm-linux-gnueabihf.
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(MOE_CROSS arm-linux-gnueabihf)
set(MOE_CROSS_DEBIAN armhf)
set(MOE_CROSS_QEMU qemu-arm)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
