// What bounds the kernels: how fast this machine reads, and how fast it multiplies int8.
#include <cstring>

#include "tests/bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace moe::bench {
namespace {

#define MOE_BENCH_INLINE inline __attribute__((always_inline))

// --- Reading -----------------------------------------------------------------------------------

constexpr size_t kAhead = 2048;  // bytes

// The sum of n bytes, a multiple of 64 * kStreams, in vectors of V. Several streams, fetched 2 KiB
// ahead, read faster from memory than one, where the hardware's own prefetch ends at a page.
template <class V, size_t kStreams, bool kPrefetch>
MOE_BENCH_INLINE uint64_t sum_streams(const uint8_t* p, size_t n) {
  using Vector = typename V::Type;
  constexpr size_t kParts = 64 / sizeof(Vector);
  Vector sum[kStreams] = {};
  const size_t stream = n / kStreams;
  for (size_t i = 0; i < stream; i += 64) {
#pragma GCC unroll 8
    for (size_t s = 0; s < kStreams; ++s) {
      const uint8_t* line = p + s * stream + i;
      if (kPrefetch) __builtin_prefetch(line + kAhead);
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

template <int kBytes>
struct VectorOf {
  typedef uint64_t Type __attribute__((vector_size(kBytes), aligned(8), may_alias));
};

template <size_t kStreams, bool kPrefetch>
uint64_t read_16(const uint8_t* p, size_t n) {
  return sum_streams<VectorOf<16>, kStreams, kPrefetch>(p, n);
}
#if defined(__x86_64__)
template <size_t kStreams, bool kPrefetch>
__attribute__((target("avx2"))) uint64_t read_32(const uint8_t* p, size_t n) {
  return sum_streams<VectorOf<32>, kStreams, kPrefetch>(p, n);
}
template <size_t kStreams, bool kPrefetch>
__attribute__((target("avx512f"))) uint64_t read_64(const uint8_t* p, size_t n) {
  return sum_streams<VectorOf<64>, kStreams, kPrefetch>(p, n);
}
#endif

using Read = uint64_t (*)(const uint8_t*, size_t);

template <size_t kStreams, bool kPrefetch>
Read widest_read() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_64<kStreams, kPrefetch>;
  if (__builtin_cpu_supports("avx2")) return read_32<kStreams, kPrefetch>;
#endif
  return read_16<kStreams, kPrefetch>;
}

void run_read(benchmark::State& state, Read read, Level level) {
  pin(state);
  const auto threads = static_cast<size_t>(state.threads());
  const size_t item = level == Level::kCache ? size_t{512} << 10
                      : level == Level::kL3  ? level_bytes(level) / threads
                                             : size_t{60} << 20;
  Items items(Content::kTrits, level, item, state);
  for (auto _ : state) benchmark::DoNotOptimize(read(items.next(), item));
  set_rate(state, "bytes/s", static_cast<double>(item));
}

// --- Multiplying -------------------------------------------------------------------------------

// Runs `steps` of independent products. The empty assembly keeps the compiler from seeing that all
// sums are the same.
struct Peak {
  const char* isa;  // the kernels it bounds
  void (*run)(int64_t steps);
  double macs;  // of one step
};

#if defined(__x86_64__)
constexpr int kChains = 12;

__attribute__((target("avx512f,avx512vnni"))) void peak_avx512vnni(int64_t steps) {
  __m512i acc[kChains] = {};
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) __asm__ volatile("" : "+v"(acc[j]));
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
  }
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) __asm__ volatile("" ::"v"(acc[j]));
}

__attribute__((target("avx2,avxvnni"))) void peak_avxvnni(int64_t steps) {
  __m256i acc[kChains] = {};
  const __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) __asm__ volatile("" : "+x"(acc[j]));
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) acc[j] = _mm256_dpbusd_avx_epi32(acc[j], a, b);
  }
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) __asm__ volatile("" ::"x"(acc[j]));
}

// Without VNNI: products of pairs added in 16 bits, which weights as small as -1, 0 and 1 allow for
// some blocks. int8 has to widen them and stays below.
__attribute__((target("avx2"))) void peak_avx2(int64_t steps) {
  __m256i acc[kChains] = {};
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      __asm__ volatile("" : "+x"(a), "+x"(acc[j]));
      acc[j] = _mm256_add_epi16(acc[j], _mm256_maddubs_epi16(a, b));
    }
  }
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) __asm__ volatile("" ::"x"(acc[j]));
}

// Four sums of 16 x 16, over 64 inputs each. Only run where kernels for AMX run.
__attribute__((target("amx-tile,amx-int8"))) void peak_amx(int64_t steps) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  for (int i = 0; i < 8; ++i) {
    shapes.row_bytes[i] = 64;
    shapes.rows[i] = 16;
  }
  alignas(64) static const uint8_t data[1024] = {1, 2, 3};
  __asm__ volatile("" ::: "memory");  // some compilers do not know that the next one reads
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, data, 64);
  _tile_loadd(5, data, 64);
  _tile_loadd(6, data, 64);
  _tile_loadd(7, data, 64);
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

constexpr Peak kPeaks[] = {{"avx512vnni", peak_avx512vnni, kChains * 64.0},
                           {"avxvnni", peak_avxvnni, kChains * 32.0},
                           {"avx2", peak_avx2, kChains * 32.0},
                           {"amx", peak_amx, 4 * 16.0 * 16.0 * 64.0}};
#elif defined(__aarch64__)
__attribute__((target("arch=armv8.2-a+dotprod"))) void peak_neon_dotprod(int64_t steps) {
  int32x4_t acc[16] = {};
  const int8x16_t a = vdupq_n_s8(3);
  const int8x16_t b = vdupq_n_s8(5);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) __asm__ volatile("" : "+w"(acc[j]));
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) acc[j] = vdotq_s32(acc[j], a, b);
  }
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) __asm__ volatile("" ::"w"(acc[j]));
}

constexpr Peak kPeaks[] = {{"neon_dotprod", peak_neon_dotprod, 16 * 16.0}};
#else
constexpr Peak kPeaks[] = {{"none", nullptr, 0}};
#endif

void run_peak(benchmark::State& state, const Peak& peak) {
  pin(state);
  constexpr int64_t kSteps = 1 << 14;
  for (auto _ : state) peak.run(kSteps);
  set_rate(state, "MAC/s", kSteps * peak.macs);
}

}  // namespace

void add_read_rooflines() {
  const auto read = [](const char* how, Read run, Level level) {
    add(std::string("read/") + how + "/" + level_name(level),
        [run, level](benchmark::State& s) { run_read(s, run, level); });
  };
  // Nothing is left to fetch from a cache this near: the instructions would only cost time.
  read("4_streams", widest_read<4, false>(), Level::kCache);
  for (const Level level : {Level::kL3, Level::kMemory}) {
    read("4_streams", widest_read<4, true>(), level);
    read("8_streams", widest_read<8, true>(), level);
  }
}

void add_rooflines(const CpuKernels* kernels) {
  for (const Peak& peak : kPeaks) {
    if (std::strcmp(peak.isa, kernels->name) != 0) continue;
    add(std::string("peak/") + peak.isa, [&peak](benchmark::State& s) { run_peak(s, peak); });
  }
}

}  // namespace moe::bench
