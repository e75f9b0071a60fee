// SPDX-License-Identifier: MIT
#include "tests/support/failing_malloc.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

extern "C" {
// The C library's own.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t align, size_t bytes);
void __libc_free(void* block);
}

namespace {

constexpr size_t kNever = ~size_t{0};

std::atomic<size_t> g_count{0};
std::atomic<size_t> g_fail_at{kNever};
std::atomic<size_t> g_fail_size{kNever};
std::atomic<bool> g_and_after{false};
std::atomic<bool> g_failed{false};
std::atomic<long> g_live{0};

// Runs before the program's code; earlier allocations of the loader are not counted.
__attribute__((constructor)) void read_environment() {
  const char* size = std::getenv("FAILING_MALLOC_SIZE");
  if (size != nullptr) g_fail_size = std::strtoul(size, nullptr, 10);
  const char* text = std::getenv("FAILING_MALLOC");
  if (text == nullptr) return;
  char* end = nullptr;
  const size_t n = std::strtoul(text, &end, 10);
  failing_malloc_arm(n, *end == '+');
}

__attribute__((destructor)) void report_count() {
  const char* path = std::getenv("FAILING_MALLOC_COUNT");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "%zu", g_count.load());
  std::fclose(file);
}

bool fails(size_t bytes = 0) {
  const size_t n = g_count.fetch_add(1, std::memory_order_relaxed);
  const size_t at = g_fail_at.load(std::memory_order_relaxed);
  const bool large = bytes >= g_fail_size.load(std::memory_order_relaxed);
  if (n != at && !(g_and_after && n > at) && !large) return false;
  g_failed = true;
  errno = ENOMEM;
  return true;
}

void* counted(void* block) {
  if (block != nullptr) g_live.fetch_add(1, std::memory_order_relaxed);
  return block;
}

}  // namespace

extern "C" {

void failing_malloc_arm(size_t n, bool and_after) {
  g_fail_at = kNever;
  g_count = 0;
  g_live = 0;
  g_failed = false;
  g_and_after = and_after;
  g_fail_at = n;
}

bool failing_malloc_disarm() {
  g_fail_at = kNever;
  g_and_after = false;
  return g_failed;
}

long failing_malloc_live() { return g_live; }

void* malloc(size_t bytes) { return fails(bytes) ? nullptr : counted(__libc_malloc(bytes)); }
void* calloc(size_t n, size_t bytes) {
  return fails() ? nullptr : counted(__libc_calloc(n, bytes));
}
void* realloc(void* block, size_t bytes) {
  if (fails()) return nullptr;
  void* moved = __libc_realloc(block, bytes);
  return block == nullptr ? counted(moved) : moved;
}
void* memalign(size_t align, size_t bytes) {
  return fails() ? nullptr : counted(__libc_memalign(align, bytes));
}
void* aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void** out, size_t align, size_t bytes) {
  void* block = memalign(align, bytes);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}
void free(void* block) {
  if (block != nullptr) g_live.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(block);
}

}  // extern "C"
