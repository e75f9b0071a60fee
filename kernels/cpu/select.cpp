// SPDX-License-Identifier: MIT
// Picks the first instruction set of list.h that this CPU supports, or the one that was asked for
// by name.
#include "kernels/cpu/select.h"

#include <cstring>

#include "kernels/cpu/isa_list.h"
#include "src/base/format.h"

namespace moe {
namespace {

// "avx2, scalar"; `all` lists the build's sets, otherwise those that run here.
void list_names(bool all, char* text, size_t bytes) {
  size_t used = 0;
  text[0] = '\0';
  for (const IsaRow& row : kIsaList) {
    if (!all && !row.runs_here()) continue;
    const int n =
        format(text + used, bytes - used, "%s%s", used == 0 ? "" : ", ", row.kernels->name);
    if (n < 0 || static_cast<size_t>(n) >= bytes - used) return;
    used += static_cast<size_t>(n);
  }
  if (used == 0) format(text, bytes, "none");
}

}  // namespace

const char* built_isa(size_t index) {
  return index < std::size(kIsaList) ? kIsaList[index].kernels->name : nullptr;
}

Result<const CpuKernels*> select_kernels(const char* isa) {
  const bool any = isa == nullptr || std::strcmp(isa, "auto") == 0;
  for (const IsaRow& row : kIsaList) {
    if ((any || std::strcmp(isa, row.kernels->name) == 0) && make_usable(row)) {
      const CpuKernels* found = row.kernels;
      return found;
    }
  }
  char built[128];
  char runs[128];
  list_names(true, built, sizeof built);
  list_names(false, runs, sizeof runs);
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "instruction set %s: this build has %s; this CPU can run %s",
                       any ? "auto" : isa, built, runs);
}

}  // namespace moe
