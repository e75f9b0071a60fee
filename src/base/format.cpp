// SPDX-License-Identifier: MIT
#include "src/base/format.h"

#include <locale.h>

#include <cstdio>

namespace moe {

int vformat(char* text, size_t n_bytes, const char* format, va_list args) {
  const locale_t plain = newlocale(LC_ALL_MASK, "C", locale_t{});
  const locale_t before = uselocale(plain);  // of this thread; a null locale changes nothing
  const int n = std::vsnprintf(text, n_bytes, format, args);
  uselocale(before);
  if (plain != locale_t{}) freelocale(plain);
  return n;
}

int format(char* text, size_t n_bytes, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int n = vformat(text, n_bytes, format, args);
  va_end(args);
  return n;
}

}  // namespace moe
