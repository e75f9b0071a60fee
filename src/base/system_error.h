// SPDX-License-Identifier: MIT
#pragma once
// Errors of calls on files (src/base/os/file.h).

#include "src/base/status.h"

namespace moe {

/// "PATH: cannot WHAT: REASON"; `error` is what the call returned.
Status system_error(moe_status code, const char* what, const char* path, int error);

}  // namespace moe
