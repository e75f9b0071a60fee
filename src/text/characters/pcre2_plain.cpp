// SPDX-License-Identifier: MIT
// A static libpcre2 would pull in its JIT compiler, 240 kB, although no pattern uses it. These
// definitions stop the linker. They are weak: if the archive's own are linked anyway, those take
// precedence. Only for static programs that do not use PCRE2 otherwise.

#include <stddef.h>

#define MOE_NOT_USED(name) \
  __attribute__((weak)) size_t name() { return 0; }

extern "C" {
MOE_NOT_USED(_pcre2_jit_check_exec_8)
MOE_NOT_USED(_pcre2_jit_free_8)
MOE_NOT_USED(_pcre2_jit_get_size_8)
MOE_NOT_USED(pcre2_jit_match_8)
}
