// SPDX-License-Identifier: MIT
// This process and its machine, as Windows tells.
#include "src/base/os/machine.h"

#include <windows.h>

#include <algorithm>

namespace moe {
namespace {

// Lowers the memory to the limit of this process's job, if that is less.
void narrow_to_job(MachineMemory* memory) {
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits;
  if (QueryInformationJobObject(nullptr, JobObjectExtendedLimitInformation, &limits, sizeof limits,
                                nullptr) == 0) {
    return;
  }
  const DWORD flags = limits.BasicLimitInformation.LimitFlags;
  if ((flags & JOB_OBJECT_LIMIT_PROCESS_MEMORY) != 0) {
    const uint64_t most = limits.ProcessMemoryLimit;
    memory->total = std::min(memory->total, most);
    memory->available = std::min(memory->available, most);
  }
}

}  // namespace

bool machine_memory(MachineMemory* out, const char*) {
  MEMORYSTATUSEX status;
  status.dwLength = sizeof status;
  if (GlobalMemoryStatusEx(&status) == 0) return false;
  *out = MachineMemory{status.ullTotalPhys, std::min(status.ullAvailPhys, status.ullAvailVirtual)};
  narrow_to_job(out);
  return true;
}

int usable_cpus(const char*) {
  DWORD_PTR mine = 0;
  DWORD_PTR all = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) == 0 || mine == 0) {
    return static_cast<int>(std::max<DWORD>(1, GetActiveProcessorCount(ALL_PROCESSOR_GROUPS)));
  }
  return __builtin_popcountll(mine);
}

int process_id() { return static_cast<int>(GetCurrentProcessId()); }

// Names must differ between processes and be hard to take in advance.
uint64_t random_bits() {
  LARGE_INTEGER ticks;
  QueryPerformanceCounter(&ticks);
  FILETIME now;
  GetSystemTimeAsFileTime(&now);
  const uint64_t seed = static_cast<uint64_t>(ticks.QuadPart) << 32 ^ now.dwLowDateTime;
  return (seed ^ uint64_t{GetCurrentProcessId()} << 20) * 0x9E3779B97F4A7C15u;
}

ArmFeatures arm_features() {
#if defined(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE)
  return {.dotprod = IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE) != 0};
#else
  return {};
#endif
}

// Windows enables them for every process on which XGETBV reports them.
bool request_tile_registers() { return true; }

}  // namespace moe
