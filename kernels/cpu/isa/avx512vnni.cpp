// SPDX-License-Identifier: MIT
// Tables of AVX-512 and of AMX, which differs only in products with many rows.
#include "kernels/cpu/isa/avx512vnni.h"

#include "kernels/cpu/isa/amx.h"

namespace moe {
namespace {

#include "kernels/cpu/generic/kernels.inc"

[[maybe_unused]] constexpr CpuKernels with_amx(CpuKernels t) {
  t.quantise_rows = quantise_rows_amx;
  t.linear = linear_amx;
  return t;
}

}  // namespace

extern const CpuKernels kernels_avx512vnni = make_table("avx512vnni");
#if defined(MOE_ISA_AMX)
extern const CpuKernels kernels_amx = with_amx(make_table("amx"));
#endif

}  // namespace moe
