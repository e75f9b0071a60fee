// SPDX-License-Identifier: MIT
// Preloaded before libmoe: a library whose minor version is the next one.

#include <moe_c.h>

extern "C" uint32_t moe_version(void) {
  return MOE_VERSION_MAJOR * 1000000 + (MOE_VERSION_MINOR + 1) * 1000;
}
