// SPDX-License-Identifier: MIT
// How many CPUs this process may use: by its affinity and, on Linux, its control groups.
#include "src/base/os/machine.h"

#if defined(__FreeBSD__)
#include <sys/param.h>
// after it
#include <sys/cpuset.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/format.h"
#include "src/base/os/posix/cgroups.h"

namespace moe {
namespace {

// Machines with more CPUs than the set holds refuse it.
int allowed_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#elif defined(__FreeBSD__)
  cpuset_t set;
  CPU_ZERO(&set);
  if (cpuset_getaffinity(CPU_LEVEL_WHICH, CPU_WHICH_PID, -1, sizeof set, &set) == 0) {
    return CPU_COUNT(&set);
  }
#endif
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

bool read_file(const char* folder, const char* name, char (&text)[kSmallFileBytes]) {
  char path[kPathBytes];
  const int n = format(path, sizeof path, "%s/%s", folder, name);
  return n > 0 && static_cast<size_t>(n) < sizeof path && read_small_file(path, text);
}

// v2: "<quota|max> <period>" in one file. v1: two files; the quota is -1 without a limit.
void narrow_cpus(void* user, const char* folder, bool v2) {
  char text[kSmallFileBytes];
  long long quota = 0;
  long long period = 0;
  if (v2) {
    if (!read_file(folder, "cpu.max", text)) return;
    char* end = nullptr;
    quota = std::strtoll(text, &end, 10);  // 0 for "max"
    period = std::strtoll(end, nullptr, 10);
  } else {
    if (!read_file(folder, "cpu.cfs_quota_us", text)) return;
    quota = std::strtoll(text, nullptr, 10);
    if (!read_file(folder, "cpu.cfs_period_us", text)) return;
    period = std::strtoll(text, nullptr, 10);
  }
  if (quota <= 0 || period <= 0) return;
  auto* cpus = static_cast<int*>(user);
  const long long whole = quota / period + (quota % period != 0 ? 1 : 0);
  *cpus = static_cast<int>(std::min<long long>(*cpus, whole));
}

}  // namespace

int usable_cpus(const char* root) {
  int cpus = std::max(1, allowed_cpus());
  each_cgroup(root, "cpu", narrow_cpus, &cpus);
  return cpus;
}

}  // namespace moe
