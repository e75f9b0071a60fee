// SPDX-License-Identifier: MIT
// A static libzstd may contain decoders for formats before version 0.8: 100 kB that no model file
// needs, since segments begin with the current magic number. These definitions stop the linker from
// including them. They are never called, and weak: if the archive's own are linked anyway, those
// take precedence. Only for shared libraries and static programs that do not use zstd otherwise.

#include <stddef.h>

#define MOE_NOT_USED(name) \
  __attribute__((weak)) size_t name() { return 0; }
#define MOE_NOT_USED_OF(version)                          \
  MOE_NOT_USED(ZBUFF##version##_createDCtx)               \
  MOE_NOT_USED(ZBUFF##version##_decompressContinue)       \
  MOE_NOT_USED(ZBUFF##version##_decompressInitDictionary) \
  MOE_NOT_USED(ZBUFF##version##_freeDCtx)                 \
  MOE_NOT_USED(ZSTD##version##_createDCtx)                \
  MOE_NOT_USED(ZSTD##version##_decompress_usingDict)      \
  MOE_NOT_USED(ZSTD##version##_findFrameSizeInfoLegacy)   \
  MOE_NOT_USED(ZSTD##version##_freeDCtx)                  \
  MOE_NOT_USED(ZSTD##version##_getFrameParams)

extern "C" {
MOE_NOT_USED_OF(v05)
MOE_NOT_USED_OF(v06)
MOE_NOT_USED_OF(v07)
}
