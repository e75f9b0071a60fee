// SPDX-License-Identifier: MIT
#pragma once
// The library's few log messages go to the caller's sink, if any.

#include <cstdarg>

#include "src/base/format.h"

namespace moe {

enum class LogLevel { kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

/// Silent unless `sink` is set. `sink` may be called from any thread.
struct Logger {
  void (*sink)(void* user, int level, const char* text) = nullptr;
  void* user = nullptr;

  void log(LogLevel level, const char* format, ...) const MOE_FORMAT(3, 4);
};

}  // namespace moe
