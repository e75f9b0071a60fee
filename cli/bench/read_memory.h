// SPDX-License-Identifier: MIT
#pragma once
// Reads memory at the machine's maximum rate: the reference for `moe bench` and kernels_bench.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moe_cli {

/// Weights read to memory use large pages if the system has them, mapped ones small pages.
enum class Pages : uint8_t { kLarge, kSmall };

/// Zeroed memory with such pages; null if unavailable. Free it with munmap().
inline uint8_t* map_pages(size_t bytes, Pages pages) {
  void* m = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return nullptr;
  (void)madvise(m, bytes, pages == Pages::kLarge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return static_cast<uint8_t*>(m);
}

/// Prefetch distance: this many bytes after the end may be touched.
inline constexpr size_t kReadAhead = 2048;

/// The sum of n bytes, as words of 8.
using Read = uint64_t (*)(const uint8_t* p, size_t n);

// Gigabytes are read: too slow with a sanitizer's check of each load.
#define MOE_UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

// n is a multiple of 64 * kStreams. Several prefetched streams read faster from memory than one,
// because hardware prefetching stops at page ends.
template <class Vector, size_t kStreams, bool kPrefetch>
MOE_UNCHECKED inline __attribute__((always_inline)) uint64_t sum_streams(const uint8_t* p,
                                                                         size_t n) {
  constexpr size_t kParts = 64 / sizeof(Vector);
  Vector sum[kStreams] = {};
  const size_t stream = n / kStreams;
  for (size_t i = 0; i < stream; i += 64) {
#pragma GCC unroll 8
    for (size_t s = 0; s < kStreams; ++s) {
      const uint8_t* line = p + s * stream + i;
      if (kPrefetch) __builtin_prefetch(line + kReadAhead);
#pragma GCC unroll 4
      for (size_t part = 0; part < kParts; ++part) {
        sum[s] += *reinterpret_cast<const Vector*>(line + part * sizeof(Vector));
      }
    }
  }
  Vector total = sum[0];
  for (size_t s = 1; s < kStreams; ++s) total += sum[s];
  uint64_t words[sizeof(Vector) / 8];
  std::memcpy(words, &total, sizeof total);
  uint64_t result = 0;
  for (const uint64_t w : words) result += w;
  return result;
}

typedef uint64_t Vector16 __attribute__((vector_size(16), aligned(8), may_alias));
typedef uint64_t Vector32 __attribute__((vector_size(32), aligned(8), may_alias));
typedef uint64_t Vector64 __attribute__((vector_size(64), aligned(8), may_alias));

template <size_t kStreams, bool kPrefetch>
MOE_UNCHECKED uint64_t read_16(const uint8_t* p, size_t n) {
  return sum_streams<Vector16, kStreams, kPrefetch>(p, n);
}
#if defined(__x86_64__)
template <size_t kStreams, bool kPrefetch>
MOE_UNCHECKED __attribute__((target("avx2"))) uint64_t read_32(const uint8_t* p, size_t n) {
  return sum_streams<Vector32, kStreams, kPrefetch>(p, n);
}
template <size_t kStreams, bool kPrefetch>
MOE_UNCHECKED __attribute__((target("avx512f"))) uint64_t read_64(const uint8_t* p, size_t n) {
  return sum_streams<Vector64, kStreams, kPrefetch>(p, n);
}
#endif

/// Uses the widest loads of this CPU.
template <size_t kStreams, bool kPrefetch>
Read widest_read() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_64<kStreams, kPrefetch>;
  if (__builtin_cpu_supports("avx2")) return read_32<kStreams, kPrefetch>;
#endif
  return read_16<kStreams, kPrefetch>;
}

}  // namespace moe_cli
