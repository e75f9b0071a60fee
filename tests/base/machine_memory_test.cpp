// SPDX-License-Identifier: MIT
// Memory sizes read from /proc and cgroups, in trees of files that the test writes.

#include <gtest/gtest.h>

#include "src/base/os/machine.h"
#include "tests/support/temp_folder.h"

namespace moe {
namespace {

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    write("proc/meminfo", "MemTotal:  16000 kB\nMemFree:  100 kB\nMemAvailable:   9000 kB\n");
  }
  void write(const std::string& name, const std::string& text) const { tree_.write(name, text); }
  void expect(uint64_t total, uint64_t available) const {
    MachineMemory memory;
    ASSERT_TRUE(machine_memory(&memory, tree_.path().c_str()));
    EXPECT_EQ(memory.total, total);
    EXPECT_EQ(memory.available, available);
  }
  test::TempFolder tree_;
};

TEST_F(MachineMemoryTest, WithoutCgroups) { expect(16000 * 1024, 9000 * 1024); }

TEST_F(MachineMemoryTest, CgroupsAreWalkedUp) {
  write("proc/self/cgroup", "1:name=systemd:/elsewhere\n0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "1000\n");
  expect(16000 * 1024, 9000 * 1024);
  write("sys/fs/cgroup/a/memory.max", "8000000\n");
  write("sys/fs/cgroup/a/memory.current", "6000000\n");
  expect(8000000, 2000000);
  // Memory of the page cache can be reclaimed and counts as available.
  write("sys/fs/cgroup/a/memory.stat",
        "anon 1\nfile 9\nactive_file 300000\ninactive_file 200000\n");
  expect(8000000, 2500000);
  write("sys/fs/cgroup/a/b/memory.max", "7000000\n");
  write("sys/fs/cgroup/a/b/memory.high", "100000\n");
  expect(100000, 99000);
}

TEST_F(MachineMemoryTest, AGroupThatIsFullHasNothingLeft) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "5000\n");
  write("sys/fs/cgroup/memory.current", "6000\n");
  expect(5000, 0);
}

TEST_F(MachineMemoryTest, CgroupsOfVersion1) {
  write("proc/self/cgroup", "5:cpuset:/x\n4:memory:/pod/one\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes", "4000000\n");
  write("sys/fs/cgroup/memory/pod/one/memory.usage_in_bytes", "3000000\n");
  write("sys/fs/cgroup/memory/pod/one/memory.stat",
        "active_file 7\ntotal_inactive_file 500000\ntotal_active_file 5\n");
  expect(4000000, 1500005);
  // In a container the path is that of the host, and the group itself is mounted as the root.
  write("proc/self/cgroup", "4:memory:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
  expect(2000000, 1500000);
}

TEST_F(MachineMemoryTest, MissingAndMalformedValuesAreIgnored) {
  MachineMemory memory;
  EXPECT_FALSE(machine_memory(&memory, tree_.file("nowhere").c_str()));
  write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: many\n");
  EXPECT_FALSE(machine_memory(&memory, tree_.path().c_str()));
  write("proc/meminfo", "MemTotal: 1000 kB");
  EXPECT_FALSE(machine_memory(&memory, tree_.path().c_str()));
}

TEST_F(MachineMemoryTest, ThisMachine) {
  MachineMemory memory;
  ASSERT_TRUE(machine_memory(&memory));
  EXPECT_GT(memory.available, 0u);
  EXPECT_LE(memory.available, memory.total);
}

}  // namespace
}  // namespace moe
