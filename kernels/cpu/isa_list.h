// SPDX-License-Identifier: MIT
#pragma once
// The instruction sets in this build, preferred ones first.

#include "kernels/cpu/features.h"
#include "kernels/cpu/table.h"

namespace moe {

#define MOE_ISA(name, runs_here, allow) extern const CpuKernels kernels_##name;
#include "kernels/cpu/isa/built.h"
#undef MOE_ISA

struct IsaRow {
  const CpuKernels* kernels;
  bool (*runs_here)();
  bool (*allow)();  // requests it from the system; null: not needed
};

/// True if the kernels of the row may now be called.
inline bool make_usable(const IsaRow& row) {
  return row.runs_here() && (row.allow == nullptr || row.allow());
}

inline constexpr IsaRow kIsaList[] = {
#define MOE_ISA(name, runs_here, allow) {&kernels_##name, runs_here, allow},
#include "kernels/cpu/isa/built.h"
#undef MOE_ISA
};

}  // namespace moe
