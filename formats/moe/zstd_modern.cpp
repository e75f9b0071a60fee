// A static libzstd may come with decoders of the formats from before version 0.8: 100 kB that no
// model file needs, since a segment begins with the magic number of today's format. These
// definitions keep the linker from taking them. They are never called, and weak: where the
// archive's own are linked in all the same, those count. For shared libraries and static programs,
// whose zstd nobody else sees.

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
