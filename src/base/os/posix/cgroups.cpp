// SPDX-License-Identifier: MIT
// Finds the control groups in /proc/self/cgroup and walks up from each to the root, for limits of
// memory and CPU.
#include "src/base/os/posix/cgroups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "src/base/format.h"
#include "src/base/string.h"

namespace moe {
namespace {

// Whether a list such as "cpu,cpuacct" has a name.
bool has_name(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (slice(list, 0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// `path` is "/a/b" and is shortened on the way.
void walk_up(const char* mount, char* path, bool v2, CgroupFn f, void* user) {
  for (;;) {
    char folder[kPathBytes];
    const int n = format(folder, sizeof folder, "%s%s", mount, path);
    if (n > 0 && static_cast<size_t>(n) < sizeof folder) f(user, folder, v2);
    char* last = std::strrchr(path, '/');
    if (last == nullptr) return;
    *last = '\0';
  }
}

}  // namespace

bool read_small_file(const char* path, char (&text)[kSmallFileBytes]) {
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

// Lines are "0::/path" of v2 and "4:cpu,cpuacct:/path" of v1.
void each_cgroup(const char* root, const char* controller, CgroupFn f, void* user) {
  char path[kPathBytes];
  char text[kSmallFileBytes];
  format(path, sizeof path, "%s/proc/self/cgroup", root);
  if (!read_small_file(path, text)) return;
  for (char* line = text; line != nullptr && *line != '\0';) {
    char* next = std::strchr(line, '\n');
    if (next != nullptr) *next++ = '\0';
    char* names = std::strchr(line, ':');
    char* group = names == nullptr ? nullptr : std::strchr(++names, ':');
    if (group != nullptr) {
      *group++ = '\0';
      if (std::strcmp(group, "/") == 0) *group = '\0';
      const bool v2 = *names == '\0';
      format(path, sizeof path, v2 ? "%s/sys/fs/cgroup" : "%s/sys/fs/cgroup/%s", root, controller);
      if (v2 || has_name(names, controller)) walk_up(path, group, v2, f, user);
    }
    line = next;
  }
}

}  // namespace moe
