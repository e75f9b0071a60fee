// SPDX-License-Identifier: MIT
#pragma once
// The kernel tables that this CPU can run.

#include <vector>

#include "kernels/cpu/isa_list.h"

namespace moe {

/// Best first.
inline std::vector<const CpuKernels*> every_isa() {
  std::vector<const CpuKernels*> all;
  for (const IsaRow& row : kIsaList) {
    if (make_usable(row)) all.push_back(row.kernels);
  }
  return all;
}

}  // namespace moe
