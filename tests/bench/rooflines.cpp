// SPDX-License-Identifier: MIT
// The rooflines of the kernels: how fast this machine reads memory, and how fast it multiplies
// int8.
#include <cstring>

#include "cli/bench/read_memory.h"
#include "tests/bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace moe::bench {
namespace {

// --- Reading -----------------------------------------------------------------------------------

using moe_cli::Read;
using moe_cli::widest_read;

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

// Without VNNI: products of pairs summed in 16 bits, which weights as small as -1, 0 and 1 allow
// for a few blocks. int8 weights need wider sums and stay below this peak.
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

// Four tiles of 16 x 16 sums over 64 inputs each. Runs only where the AMX kernels run.
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
  __asm__ volatile(
      "" ::
          : "memory");  // some compilers do not know that the next intrinsic reads memory
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
  // Prefetch instructions gain nothing in the nearest cache and only cost time.
  read("4_streams", widest_read<4, false>(), Level::kCache);
  for (const Level level : {Level::kL3, Level::kMemory}) {
    read("2_streams", widest_read<2, false>(), level);
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
