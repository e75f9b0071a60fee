# SPDX-License-Identifier: MIT
# Shared by the toolchain files. MOE_CROSS: the name of Debian's cross compiler, MOE_CROSS_DEBIAN: of
# its architecture, MOE_CROSS_QEMU: of qemu-user. Libraries come from scripts/fetch-cross-libs.sh.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER ${MOE_CROSS}-gcc)
set(CMAKE_CXX_COMPILER ${MOE_CROSS}-g++)
cmake_path(SET cross_libs NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/${MOE_CROSS_DEBIAN}-libs/usr)
set(CMAKE_CROSSCOMPILING_EMULATOR ${MOE_CROSS_QEMU} -L /usr/${MOE_CROSS}
  -E LD_LIBRARY_PATH=${cross_libs}/lib/${MOE_CROSS})
list(APPEND CMAKE_PREFIX_PATH ${cross_libs})
set(CMAKE_LIBRARY_ARCHITECTURE ${MOE_CROSS})
# No run path names them, so the linker is told where the libraries of our libraries lie.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${cross_libs}/lib/${MOE_CROSS})
