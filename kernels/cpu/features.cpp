// SPDX-License-Identifier: MIT
// Asks x86 CPUs with cpuid and xgetbv, Arm ones through the operating system.
#include "kernels/cpu/features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "src/base/os/machine.h"

namespace moe {

bool cpu_has_baseline() { return true; }

#if defined(__x86_64__)
namespace {

struct Cpuid {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Cpuid cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Cpuid r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

constexpr bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }
constexpr uint32_t bit(int n) { return 1u << n; }

// Register states that the operating system saves; 0 without XGETBV.
uint32_t saved_states() {
  if (!has(cpuid(1).c, bit(27))) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

bool cpu_has_avx2() {
  const uint32_t fma_avx_f16c = bit(12) | bit(28) | bit(29);
  return has(saved_states(), bit(1) | bit(2)) && has(cpuid(1).c, fma_avx_f16c) &&
         has(cpuid(7).b, bit(5));
}

// Subleaf 1 is valid only if subleaf 0 reports it.
bool cpu_has_avxvnni() { return cpu_has_avx2() && cpuid(7).a >= 1 && has(cpuid(7, 1).a, bit(4)); }

bool cpu_has_avx512vnni() {
  const uint32_t f_bw_vl = bit(16) | bit(30) | bit(31);
  const uint32_t vbmi_vnni = bit(1) | bit(11);
  return cpu_has_avx2() && has(saved_states(), bit(5) | bit(6) | bit(7)) &&
         has(cpuid(7).b, f_bw_vl) && has(cpuid(7).c, vbmi_vnni);
}

bool cpu_has_amx() {
  const uint32_t tile_int8 = bit(24) | bit(25);
  return cpu_has_avx512vnni() && has(saved_states(), bit(17) | bit(18)) &&
         has(cpuid(7).d, tile_int8);
}

bool allow_amx() { return request_tile_registers(); }
#else
bool cpu_has_amx() { return false; }
bool allow_amx() { return false; }
bool cpu_has_avx2() { return false; }
bool cpu_has_avxvnni() { return false; }
bool cpu_has_avx512vnni() { return false; }
#endif

bool cpu_has_neon_i8mm() { return arm_features().dotprod && arm_features().i8mm; }
bool cpu_has_neon_dotprod() { return arm_features().dotprod; }

}  // namespace moe
