# Cross-compiles for aarch64 with Debian's g++-aarch64-linux-gnu; programs run under qemu-user.
# Libraries come from scripts/fetch-arm64-libs.sh.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
cmake_path(SET arm64_libs NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-libs/usr)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
  -E LD_LIBRARY_PATH=${arm64_libs}/lib/aarch64-linux-gnu)
list(APPEND CMAKE_PREFIX_PATH ${arm64_libs})
# No run path names them, so the linker is told where the libraries of our libraries lie.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${arm64_libs}/lib/aarch64-linux-gnu)
