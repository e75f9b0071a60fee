// SPDX-License-Identifier: MIT
#pragma once
// Errors of system calls on files.

#include "src/base/status.h"

namespace moe {

/// "PATH: cannot WHAT: REASON"; `error` is errno after the call.
Status system_error(moe_status code, const char* what, const char* path, int error);

}  // namespace moe
