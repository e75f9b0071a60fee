// SPDX-License-Identifier: MIT
#include "src/base/system_error.h"

#include <cstring>

namespace moe {

Status system_error(moe_status code, const char* what, const char* path, int error) {
  char text[128];
  const char* reason = text;
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
  reason = strerror_r(error, text, sizeof text);
#else
  if (strerror_r(error, text, sizeof text) != 0) std::strcpy(text, "unknown error");
#endif
  return Status::error(code, "%s: cannot %s: %s", path, what, reason);
}

}  // namespace moe
