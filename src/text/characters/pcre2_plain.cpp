// A static libpcre2 brings its just-in-time compiler, 240 kB, although no pattern of ours is ever
// compiled by it. These definitions keep the linker from taking it. They are weak: where the
// archive's own are linked in all the same, those count. For static programs, whose PCRE2 nobody
// else sees.

#include <stddef.h>

#define MOE_NOT_USED(name) \
  __attribute__((weak)) size_t name() { return 0; }

extern "C" {
MOE_NOT_USED(_pcre2_jit_check_exec_8)
MOE_NOT_USED(_pcre2_jit_free_8)
MOE_NOT_USED(_pcre2_jit_get_size_8)
MOE_NOT_USED(pcre2_jit_match_8)
}
