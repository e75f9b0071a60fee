// SPDX-License-Identifier: MIT
/* Checks that are counted, and an allocator that fails on request. */
#ifndef MOE_TESTS_C_API_CHECK_H
#define MOE_TESTS_C_API_CHECK_H

#include <moe_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int g_checks = 0;
static int g_failures = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    ++g_checks;                                                               \
    if (!(condition)) {                                                       \
      ++g_failures;                                                           \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)
#define CHECK_OK(call)                                                                      \
  do {                                                                                      \
    moe_status check_status = (call);                                                       \
    ++g_checks;                                                                             \
    if (check_status != MOE_OK) {                                                           \
      ++g_failures;                                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, moe_status_name(check_status), \
              error.text);                                                                  \
    }                                                                                       \
  } while (0)

static moe_error error;

/* An allocator that counts its blocks and fails from allocation `fail_at` on, counted from 0. */
typedef struct Meter {
  long live_blocks;
  long long live_bytes;
  long n_allocations;
  long fail_at; /* -1: never */
} Meter;

static void* meter_allocate(void* user, size_t bytes, size_t align) {
  Meter* m = user;
  long index = m->n_allocations++;
  if (m->fail_at >= 0 && index >= m->fail_at) return NULL;
  if (align < sizeof(void*)) align = sizeof(void*);
  unsigned char* raw = malloc(bytes + align + sizeof(size_t));
  if (raw == NULL) return NULL;
  unsigned char* p = raw + sizeof(size_t);
  p += (align - (size_t)((uintptr_t)p % align)) % align;
  size_t offset = (size_t)(p - raw);
  memcpy(p - sizeof(size_t), &offset, sizeof offset);
  ++m->live_blocks;
  m->live_bytes += (long long)bytes;
  return p;
}

static void meter_deallocate(void* user, void* pointer, size_t bytes) {
  Meter* m = user;
  size_t offset;
  memcpy(&offset, (unsigned char*)pointer - sizeof(size_t), sizeof offset);
  free((unsigned char*)pointer - offset);
  --m->live_blocks;
  m->live_bytes -= (long long)bytes;
}

#endif
