#pragma once
// The instruction sets that this build holds, the preferred ones first. A new one is its file in
// kernels/cpu/isa, a line of flags in kernels/CMakeLists.txt and a row here.

#include "kernels/cpu/features.h"
#include "kernels/cpu/table.h"

namespace moe {

#if defined(MOE_ISA_AMX)
extern const CpuKernels kernels_amx;
#endif
#if defined(MOE_ISA_AVX512VNNI)
extern const CpuKernels kernels_avx512vnni;
#endif
#if defined(MOE_ISA_AVXVNNI)
extern const CpuKernels kernels_avxvnni;
#endif
#if defined(MOE_ISA_AVX2)
extern const CpuKernels kernels_avx2;
#endif
#if defined(MOE_ISA_NEON_I8MM)
extern const CpuKernels kernels_neon_i8mm;
#endif
#if defined(MOE_ISA_NEON_DOTPROD)
extern const CpuKernels kernels_neon_dotprod;
#endif
#if defined(MOE_ISA_SCALAR)
extern const CpuKernels kernels_scalar;
#endif

struct IsaRow {
  const CpuKernels* kernels;
  bool (*runs_here)();
  bool (*allow)() = nullptr;  // asks the system for it, where that is needed
};

/// After this the kernels of the row may be called.
inline bool make_usable(const IsaRow& row) {
  return row.runs_here() && (row.allow == nullptr || row.allow());
}

inline constexpr IsaRow kIsaList[] = {
#if defined(MOE_ISA_AMX)
    {&kernels_amx, cpu_has_amx, allow_amx},
#endif
#if defined(MOE_ISA_AVX512VNNI)
    {&kernels_avx512vnni, cpu_has_avx512vnni},
#endif
#if defined(MOE_ISA_AVXVNNI)
    {&kernels_avxvnni, cpu_has_avxvnni},
#endif
#if defined(MOE_ISA_AVX2)
    {&kernels_avx2, cpu_has_avx2},
#endif
#if defined(MOE_ISA_NEON_I8MM)
    {&kernels_neon_i8mm, cpu_has_neon_i8mm},
#endif
#if defined(MOE_ISA_NEON_DOTPROD)
    {&kernels_neon_dotprod, cpu_has_neon_dotprod},
#endif
#if defined(MOE_ISA_SCALAR)
    {&kernels_scalar, cpu_has_baseline},
#endif
};

/// The same names in one text: ",amx,avx512vnni,avxvnni,avx2,scalar".
inline constexpr char kIsaNames[] =
#if defined(MOE_ISA_AMX)
    ",amx"
#endif
#if defined(MOE_ISA_AVX512VNNI)
    ",avx512vnni"
#endif
#if defined(MOE_ISA_AVXVNNI)
    ",avxvnni"
#endif
#if defined(MOE_ISA_AVX2)
    ",avx2"
#endif
#if defined(MOE_ISA_NEON_I8MM)
    ",neon_i8mm"
#endif
#if defined(MOE_ISA_NEON_DOTPROD)
    ",neon_dotprod"
#endif
#if defined(MOE_ISA_SCALAR)
    ",scalar"
#endif
    ;

}  // namespace moe
