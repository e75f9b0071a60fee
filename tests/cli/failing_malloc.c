/* Loaded before a program (LD_PRELOAD): allocation number MOE_TEST_FAIL_AT fails, and with
 * MOE_TEST_FAIL_ON every later one too. MOE_TEST_COUNT names a file that gets their number at the
 * end. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t align, size_t bytes);

static atomic_long g_count;
static long g_fail_at = -1; /* -1: the environment was not read yet */
static int g_fail_on;

static int fails(void) {
  const long n = atomic_fetch_add(&g_count, 1) + 1;
  if (g_fail_at < 0) {
    const char* at = getenv("MOE_TEST_FAIL_AT");
    g_fail_on = getenv("MOE_TEST_FAIL_ON") != NULL;
    if (at != NULL) g_fail_at = atol(at);
  }
  if (g_fail_at <= 0 || (g_fail_on ? n < g_fail_at : n != g_fail_at)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t bytes) { return fails() ? NULL : __libc_malloc(bytes); }
void* calloc(size_t n, size_t bytes) { return fails() ? NULL : __libc_calloc(n, bytes); }
void* realloc(void* old, size_t bytes) { return fails() ? NULL : __libc_realloc(old, bytes); }
void* memalign(size_t align, size_t bytes) {
  return fails() ? NULL : __libc_memalign(align, bytes);
}
void* aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void** out, size_t align, size_t bytes) {
  void* p = memalign(align, bytes);
  if (p == NULL) return ENOMEM;
  *out = p;
  return 0;
}

__attribute__((destructor)) static void report(void) {
  const char* path = getenv("MOE_TEST_COUNT");
  if (path == NULL) return;
  FILE* f = fopen(path, "w");
  if (f == NULL) return;
  fprintf(f, "%ld", atomic_load(&g_count));
  fclose(f);
}
