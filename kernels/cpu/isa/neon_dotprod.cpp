// Armv8.2 with the dot product instructions.
#include "kernels/cpu/isa/neon.h"

namespace moe {
namespace {

struct Isa : Neon {
  static constexpr bool kMatrix = false;
};

#include "kernels/cpu/generic/kernels.inc"

}  // namespace

extern const CpuKernels kernels_neon_dotprod = make_table("neon_dotprod");

}  // namespace moe
