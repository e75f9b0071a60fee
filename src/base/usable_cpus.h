// SPDX-License-Identifier: MIT
#pragma once
// How many CPUs this process may use.

namespace moe {

/// The CPUs of the affinity mask, or fewer if the quota of a control group is smaller; at least 1.
/// `root` is prepended to /proc and /sys; not empty only in tests.
int usable_cpus(const char* root = "");

}  // namespace moe
