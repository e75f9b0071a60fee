// SPDX-License-Identifier: MIT
// The memory of the machine: from /proc and control groups on Linux, from sysctl elsewhere.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "src/base/format.h"
#include "src/base/os/machine.h"
#include "src/base/os/posix/cgroups.h"

#if !defined(__linux__)
#include <sys/sysctl.h>
#include <sys/types.h>
#include <unistd.h>
#endif

namespace moe {
#if defined(__linux__)
namespace {

// The number after `name` at the start of a line.
bool field(const char* text, const char* name, uint64_t* out) {
  const size_t n = std::strlen(name);
  for (const char* line = text; line != nullptr && *line != '\0';) {
    if (std::strncmp(line, name, n) == 0 && (line[n] == ' ' || line[n] == ':')) {
      char* end = nullptr;
      *out = std::strtoull(line + n + 1, &end, 10);
      return end != line + n + 1;
    }
    line = std::strchr(line, '\n');
    if (line != nullptr) ++line;
  }
  return false;
}

// The names of the files of cgroup v2 and v1.
struct Names {
  const char* limits[2];  // the second may be null
  const char* usage;
  const char* caches[2];  // in memory.stat: page cache that the kernel can reclaim
};
constexpr Names kV2 = {
    {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};
constexpr Names kV1 = {{"memory.limit_in_bytes", nullptr},
                       "memory.usage_in_bytes",
                       {"total_inactive_file", "total_active_file"}};

/// The files of a group.
class Group {
 public:
  explicit Group(const char* folder) : folder_(folder) {}

  bool number(const char* name, uint64_t* out) {
    if (!load(name)) return false;
    char* end = nullptr;
    *out = std::strtoull(text_, &end, 10);
    return end != text_;  // "max" is no number
  }
  /// Bytes in use without those of the page cache that can be reclaimed.
  uint64_t used(const Names& names) {
    uint64_t used = 0;
    if (!number(names.usage, &used) || !load("memory.stat")) return used;
    for (const char* name : names.caches) {
      uint64_t cached = 0;
      if (field(text_, name, &cached)) used -= std::min(used, cached);
    }
    return used;
  }

 private:
  bool load(const char* name) {
    char path[kPathBytes];
    const int n = format(path, sizeof path, "%s/%s", folder_, name);
    return n > 0 && static_cast<size_t>(n) < sizeof path && read_small_file(path, text_);
  }

  const char* folder_;
  char text_[kSmallFileBytes];
};

void narrow_memory(void* user, const char* folder, bool v2) {
  auto* memory = static_cast<MachineMemory*>(user);
  const Names& names = v2 ? kV2 : kV1;
  Group group(folder);
  uint64_t limit = UINT64_MAX;
  for (const char* name : names.limits) {
    uint64_t found = 0;
    if (name != nullptr && group.number(name, &found)) limit = std::min(limit, found);
  }
  if (limit == UINT64_MAX) return;
  memory->total = std::min(memory->total, limit);
  memory->available = std::min(memory->available, limit - std::min(limit, group.used(names)));
}

}  // namespace

bool machine_memory(MachineMemory* out, const char* root) {
  char path[kPathBytes];
  char text[kSmallFileBytes];
  uint64_t total = 0;
  uint64_t available = 0;
  format(path, sizeof path, "%s/proc/meminfo", root);
  if (!read_small_file(path, text) || !field(text, "MemTotal", &total) ||
      !field(text, "MemAvailable", &available)) {
    return false;
  }
  MachineMemory memory{total * 1024, available * 1024};
  each_cgroup(root, "memory", narrow_memory, &memory);
  *out = memory;
  return true;
}

#else

namespace {

uint64_t pages_of(const char* name) {
  unsigned int pages = 0;
  size_t bytes = sizeof pages;
  return sysctlbyname(name, &pages, &bytes, nullptr, 0) == 0 ? pages : 0;
}

}  // namespace

// Pages that are free, and those that are kept in case they are needed again.
bool machine_memory(MachineMemory* out, const char*) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
#if defined(__APPLE__)
  uint64_t total = 0;
  size_t bytes = sizeof total;
  if (sysctlbyname("hw.memsize", &total, &bytes, nullptr, 0) != 0) return false;
  const uint64_t available = pages_of("vm.page_free_count") + pages_of("vm.page_purgeable_count");
#else
  const uint64_t total = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page;
  const uint64_t available =
      pages_of("vm.stats.vm.v_free_count") + pages_of("vm.stats.vm.v_inactive_count");
#endif
  *out = MachineMemory{total, std::min(total, available * page)};
  return true;
}

#endif

}  // namespace moe
