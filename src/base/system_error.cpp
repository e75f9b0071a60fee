// SPDX-License-Identifier: MIT
// Makes a Status of a system call's error, with the path and what was tried.
#include "src/base/system_error.h"

#include "src/base/os/file.h"

namespace moe {

Status system_error(moe_status code, const char* what, const char* path, int error) {
  char text[kReasonBytes];
  return Status::error(code, "%s: cannot %s: %s", path, what, error_reason(error, text));
}

}  // namespace moe
