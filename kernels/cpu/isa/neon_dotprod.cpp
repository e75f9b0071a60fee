// SPDX-License-Identifier: MIT
// Tables of Armv8.2 with the dot product instructions, and of the matrix instructions, which differ
// only in products of codes.
#include "kernels/cpu/isa/neon.h"
#include "kernels/cpu/isa/neon_i8mm.h"

namespace moe {
namespace {

struct Isa : Neon {
  static constexpr bool kMatrix = false;
};

#include "kernels/cpu/generic/kernels.inc"

[[maybe_unused]] constexpr CpuKernels with_i8mm(CpuKernels t) {
  t.linear = linear_neon_i8mm;
  return t;
}

}  // namespace

extern const CpuKernels kernels_neon_dotprod = make_table("neon_dotprod");
#if defined(MOE_ISA_NEON_I8MM)
extern const CpuKernels kernels_neon_i8mm = with_i8mm(make_table("neon_i8mm"));
#endif

}  // namespace moe
