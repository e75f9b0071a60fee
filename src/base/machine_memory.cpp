#include "src/base/machine_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "src/base/format.h"

namespace moe {
namespace {

constexpr size_t kTextBytes = 16384;
constexpr size_t kPathBytes = 4096;

// Reads a small file, terminated; longer files are truncated.
bool read_text(const char* path, char (&text)[kTextBytes]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t used = 0;
  for (ssize_t got = 1; got > 0 && used < sizeof text - 1; used += static_cast<size_t>(got)) {
    got = std::max<ssize_t>(0, read(fd, text + used, sizeof text - 1 - used));
  }
  close(fd);
  text[used] = '\0';
  return used > 0;
}

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
  const char* mount;
  const char* limits[2];  // the second may be null
  const char* usage;
  const char* caches[2];  // in memory.stat: page cache that the kernel can reclaim
};
constexpr Names kV2 = {"/sys/fs/cgroup",
                       {"memory.max", "memory.high"},
                       "memory.current",
                       {"inactive_file", "active_file"}};
constexpr Names kV1 = {"/sys/fs/cgroup/memory",
                       {"memory.limit_in_bytes", nullptr},
                       "memory.usage_in_bytes",
                       {"total_inactive_file", "total_active_file"}};

class Cgroup {
 public:
  Cgroup(const char* root, const Names& names) : root_(root), names_(names) {}

  // Applies a group's limits and those of all its parents. `path` is "/a/b" and is shortened on the
  // way.
  void narrow(char* path, MachineMemory* memory) {
    for (;;) {
      look_at(path, memory);
      char* last = std::strrchr(path, '/');
      if (last == nullptr) return;
      *last = '\0';
    }
  }

 private:
  bool load(const char* group, const char* name) {
    char path[kPathBytes];
    const int n = format(path, sizeof path, "%s%s%s/%s", root_, names_.mount, group, name);
    return n > 0 && static_cast<size_t>(n) < sizeof path && read_text(path, text_);
  }

  bool number(const char* group, const char* name, uint64_t* out) {
    if (!load(group, name)) return false;
    char* end = nullptr;
    *out = std::strtoull(text_, &end, 10);
    return end != text_;  // "max" is no number
  }

  void look_at(const char* group, MachineMemory* memory) {
    uint64_t limit = UINT64_MAX;
    for (const char* name : names_.limits) {
      uint64_t found = 0;
      if (name != nullptr && number(group, name, &found)) limit = std::min(limit, found);
    }
    uint64_t used = 0;
    if (limit == UINT64_MAX) return;
    if (number(group, names_.usage, &used) && load(group, "memory.stat")) {
      for (const char* name : names_.caches) {
        uint64_t cached = 0;
        if (field(text_, name, &cached)) used -= std::min(used, cached);
      }
    }
    memory->total = std::min(memory->total, limit);
    memory->available = std::min(memory->available, limit - std::min(limit, used));
  }

  const char* root_;
  const Names& names_;
  char text_[kTextBytes];
};

// Lines are "0::/path" of v2 and "4:cpu,memory:/path" of v1.
void narrow_by_cgroups(const char* root, char* text, MachineMemory* memory) {
  for (char* line = text; line != nullptr && *line != '\0';) {
    char* next = std::strchr(line, '\n');
    if (next != nullptr) *next++ = '\0';
    char* controllers = std::strchr(line, ':');
    char* path = controllers == nullptr ? nullptr : std::strchr(controllers + 1, ':');
    if (path != nullptr) {
      *path++ = '\0';
      if (std::strcmp(path, "/") == 0) *path = '\0';
      const bool v2 = controllers[1] == '\0';
      if (v2) Cgroup(root, kV2).narrow(path, memory);
      if (!v2 && std::strstr(controllers, "memory") != nullptr) {
        Cgroup(root, kV1).narrow(path, memory);
      }
    }
    line = next;
  }
}

}  // namespace

bool machine_memory(MachineMemory* out, const char* root) {
  char path[kPathBytes];
  char text[kTextBytes];
  uint64_t total = 0;
  uint64_t available = 0;
  format(path, sizeof path, "%s/proc/meminfo", root);
  if (!read_text(path, text) || !field(text, "MemTotal", &total) ||
      !field(text, "MemAvailable", &available)) {
    return false;
  }
  MachineMemory memory{total * 1024, available * 1024};
  format(path, sizeof path, "%s/proc/self/cgroup", root);
  if (read_text(path, text)) narrow_by_cgroups(root, text, &memory);
  *out = memory;
  return true;
}

}  // namespace moe
