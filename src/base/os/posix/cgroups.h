// SPDX-License-Identifier: MIT
#pragma once
// The control groups of this process: cgroup v2, and v1 controllers.

#include <cstddef>

namespace moe {

constexpr size_t kSmallFileBytes = 16384;
constexpr size_t kPathBytes = 4096;  // longer paths do not count

/// Reads a small file, terminated; longer files are truncated. False if it is empty or cannot be
/// read.
bool read_small_file(const char* path, char (&text)[kSmallFileBytes]);

/// Called with the folder of a group.
using CgroupFn = void (*)(void* user, const char* folder, bool v2);

/// Calls f with the process's groups, and with all their parents, in which `controller` ("memory",
/// "cpu") may have limits. `root` is prepended to /proc and /sys; not empty only in tests.
void each_cgroup(const char* root, const char* controller, CgroupFn f, void* user);

}  // namespace moe
