#include "base/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gristmill {
namespace {

class QuotaCores : public testing::Test {
 protected:
  QuotaCores() : root_(testing::TempDir() + "gristmill_quota_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(root_);
  }
  ~QuotaCores() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST(Topology, CountsCoresAndNodes) {
  EXPECT_EQ(Topology{}.cores(), 0);
  EXPECT_EQ(Topology{}.numa_nodes(), 1);
  const Topology topology{{{0, 4, {0, 1, 2, 3}}, {0, 4, {4, 5, 6, 7}}, {2, 1, {8, 9}}}, true};
  EXPECT_EQ(topology.cores(), 9);
  EXPECT_EQ(topology.numa_nodes(), 2);
  EXPECT_LE(usable_cores(topology), 9);
  EXPECT_EQ(usable_cores({{{0, 1, {0}}}, false}), 1);
}

TEST_F(QuotaCores, IsZeroWithoutControlGroups) {
  EXPECT_EQ(quota_cores(root_), 0);
}

TEST_F(QuotaCores, ReadsVersion2AndTakesTheLowestOnTheWayUp) {
  write("/proc/self/cgroup", "0::/pods/one\n");
  write("/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
  EXPECT_EQ(quota_cores(root_), 0);
  write("/sys/fs/cgroup/pods/cpu.max", "600000 100000\n");
  EXPECT_EQ(quota_cores(root_), 6);
  write("/sys/fs/cgroup/pods/one/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota_cores(root_), 2);
  write("/sys/fs/cgroup/pods/one/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota_cores(root_), 1);
}

TEST_F(QuotaCores, ReadsTheMountsRootWhenThePathIsTheHosts) {
  write("/proc/self/cgroup", "0::/not/visible/here\n");
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota_cores(root_), 3);
}

TEST_F(QuotaCores, ReadsVersion1) {
  write("/proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/box\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_cores(root_), 0);
  write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(quota_cores(root_), 4);
}

TEST_F(QuotaCores, IgnoresTextThatIsNoQuota) {
  write("/proc/self/cgroup", "nonsense\n::\n0::relative\n0::/a\n");
  write("/sys/fs/cgroup/a/cpu.max", "lots of cores\n");
  EXPECT_EQ(quota_cores(root_), 0);
}

TEST(UsableCores, IsAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace gristmill
