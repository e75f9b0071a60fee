// SPDX-License-Identifier: MIT
// The number of CPUs, from control groups in trees of files that the test writes.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <string>

#include "src/base/os/machine.h"
#include "tests/support/temp_folder.h"

namespace moe {
namespace {

int cpus_of(const test::TempFolder& tree) { return usable_cpus(tree.path().c_str()); }

int all_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST(UsableCpus, WithoutALimit) {
  const test::TempFolder tree;
  EXPECT_EQ(cpus_of(tree), all_cpus());
  tree.write("proc/self/cgroup", "0::/a\n");
  EXPECT_EQ(cpus_of(tree), all_cpus());
  for (const char* text : {"max 100000\n", "lots\n", "", "-1 100000\n", "50000 0\n", "50000\n"}) {
    tree.write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(cpus_of(tree), all_cpus()) << text;
  }
}

TEST(UsableCpus, AQuotaIsRoundedUp) {
  const test::TempFolder tree;
  tree.write("proc/self/cgroup", "0::/system.slice/a.service\n");
  tree.write("sys/fs/cgroup/system.slice/a.service/cpu.max", "1000 100000\n");
  EXPECT_EQ(cpus_of(tree), 1);
  tree.write("sys/fs/cgroup/system.slice/a.service/cpu.max", "100001 100000\n");
  EXPECT_EQ(cpus_of(tree), std::min(2, all_cpus()));
  tree.write("sys/fs/cgroup/system.slice/a.service/cpu.max", "9223372036854775807 1\n");
  EXPECT_EQ(cpus_of(tree), all_cpus());
}

TEST(UsableCpus, ParentsLimitTheirGroups) {
  for (const char* parent : {"sys/fs/cgroup/a", "sys/fs/cgroup"}) {
    const test::TempFolder tree;
    tree.write("proc/self/cgroup", "0::/a/b\n");
    tree.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    tree.write(std::string(parent) + "/cpu.max", "50000 100000\n");
    EXPECT_EQ(cpus_of(tree), 1) << parent;
  }
}

TEST(UsableCpus, ControllersOfVersion1) {
  const test::TempFolder tree;
  tree.write("proc/self/cgroup", "5:cpuset:/x\n4:cpuacct,cpu:/pod\n0::/\n");
  tree.write("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  tree.write("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpus_of(tree), all_cpus());
  tree.write("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "70000\n");
  EXPECT_EQ(cpus_of(tree), 1);
  tree.write("proc/self/cgroup", "4:cpuset,cpuacct:/pod\n");  // the quota is of another group
  EXPECT_EQ(cpus_of(tree), all_cpus());
}

}  // namespace
}  // namespace moe
