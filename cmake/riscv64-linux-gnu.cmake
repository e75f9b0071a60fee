# SPDX-License-Identifier: MIT
# Cross-compiles for 64-bit RISC-V with Debian's g++-riscv64-linux-gnu.
set(CMAKE_SYSTEM_PROCESSOR riscv64)
set(MOE_CROSS riscv64-linux-gnu)
set(MOE_CROSS_DEBIAN riscv64)
set(MOE_CROSS_QEMU qemu-riscv64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
