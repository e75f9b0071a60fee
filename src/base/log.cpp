// SPDX-License-Identifier: MIT
// Formats a message in a buffer of fixed size and gives it to the sink.
#include "src/base/log.h"

#include "src/base/format.h"

namespace moe {

void Logger::log(LogLevel level, const char* format, ...) const {
  if (sink == nullptr) return;
  char text[512];
  va_list args;
  va_start(args, format);
  const int n = vformat(text, sizeof text, format, args);
  va_end(args);
  if (n >= 0) sink(user, static_cast<int>(level), text);
}

}  // namespace moe
