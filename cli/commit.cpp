// SPDX-License-Identifier: MIT
// The commit that this was built from, apart from all else: every commit compiles this file.

#include "cli/commit.h"

#define MOE_SPELLED(x) #x
#define MOE_SPELLED_OF(x) MOE_SPELLED(x)

namespace moe_cli {

const char* built_commit() {
#ifdef MOE_COMMIT
  return MOE_SPELLED_OF(MOE_COMMIT);
#else
  return "";
#endif
}

}  // namespace moe_cli
