#include "config/host_topology.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "base/error.h"

namespace gristmill::config {
namespace {

class HostTopology : public testing::Test {
 protected:
  Topology read(const std::string& synthetic = "") { return host_topology(lookup(), synthetic); }
  Lookup lookup() {
    return [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return {};
      return found->second;
    };
  }
  std::string failure(const std::string& synthetic) {
    try {
      read(synthetic);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  /// "node: cores [cpus]" of every domain.
  static std::string text(const Topology& topology) {
    std::string out;
    for (const CpuDomain& domain : topology.domains) {
      out += cat(out.empty() ? "" : "; ", domain.numa_node, ": ", domain.cores, " [");
      for (const int cpu : domain.cpus) out += cat(cpu == domain.cpus.front() ? "" : " ", cpu);
      out += "]";
    }
    return out;
  }
  std::map<std::string, std::string> variables_;
};

TEST_F(HostTopology, ThisMachineHasTheCoresThatMayBeUsed) {
  const Topology topology = read();
  ASSERT_FALSE(topology.domains.empty());
  EXPECT_GE(topology.cores(), 1);
  EXPECT_GE(topology.numa_nodes(), 1);
  size_t cpus = 0;
  for (const CpuDomain& domain : topology.domains) cpus += domain.cpus.size();
  EXPECT_GE(cpus, static_cast<size_t>(topology.cores()));
  EXPECT_LE(usable_cores(topology), usable_cores());
}

TEST_F(HostTopology, CoresUnderALargeCacheAreADomain) {
  EXPECT_EQ(text(read("node:2 l3:2 core:4 pu:1")),
            "0: 4 [0 1 2 3]; 0: 4 [4 5 6 7]; 1: 4 [8 9 10 11]; 1: 4 [12 13 14 15]");
  EXPECT_TRUE(read("node:2 l3:2 core:4 pu:1").bind);
  EXPECT_EQ(read("node:2 l3:2 core:4 pu:1").numa_nodes(), 2);
}

TEST_F(HostTopology, CachesOfFewCoresAndMachinesWithoutMakeADomainOfTheNode) {
  EXPECT_EQ(text(read("node:2 l3:2 core:2 pu:1")), "0: 4 [0 1 2 3]; 1: 4 [4 5 6 7]");
  EXPECT_EQ(text(read("node:1 core:2 pu:1")), "0: 2 [0 1]");
  EXPECT_FALSE(read("node:1 core:2 pu:1").bind) << "one domain: nothing to bind to";
}

TEST_F(HostTopology, ThreadsOfACoreCountOnce) {
  const Topology topology = read("node:1 l3:1 core:4 pu:2");
  EXPECT_EQ(text(topology), "0: 4 [0 1 2 3 4 5 6 7]");
  EXPECT_EQ(topology.cores(), 4);
}

TEST_F(HostTopology, AListChoosesCpusAndBindsToThem) {
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "1-2,9";
  const Topology topology = read("node:2 l3:1 core:4 pu:2");
  EXPECT_EQ(text(topology), "0: 2 [1 2]; 1: 1 [9]");
  EXPECT_TRUE(topology.bind);
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "3";
  EXPECT_EQ(text(read("node:2 l3:1 core:4 pu:1")), "0: 1 [3]");
  EXPECT_TRUE(read("node:2 l3:1 core:4 pu:1").bind);
}

TEST_F(HostTopology, NobindBindsNothing) {
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "nobind";
  EXPECT_FALSE(read("node:2 l3:2 core:4 pu:1").bind);
  EXPECT_EQ(read("node:2 l3:2 core:4 pu:1").cores(), 16);
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "auto";
  EXPECT_TRUE(read("node:2 l3:2 core:4 pu:1").bind);
}

TEST_F(HostTopology, WrongListsNameTheVariable) {
  for (const char* value : {"x", "1,", ",1", "3-1", "-1", "1-", "1 2", "0-3x", "99999999999"}) {
    variables_["VLLM_CPU_OMP_THREADS_BIND"] = value;
    EXPECT_NE(failure("node:1 core:4 pu:1").find("VLLM_CPU_OMP_THREADS_BIND"), std::string::npos) << value;
  }
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "0-4";
  EXPECT_NE(failure("node:1 core:4 pu:1").find("CPU 4 is not among"), std::string::npos);
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "0-2147483647";
  EXPECT_NE(failure("node:1 core:4 pu:1").find("CPU 4 is not among"), std::string::npos);
  variables_["VLLM_CPU_OMP_THREADS_BIND"] = "0-1|2-3";
  EXPECT_NE(failure("node:1 core:4 pu:1").find("one rank"), std::string::npos);
}

TEST_F(HostTopology, ReservedCpusAreLeftToOthers) {
  const Topology topology = read();
  const int cores = usable_cores(topology);
  EXPECT_EQ(default_threads(topology, lookup()), cores);
  variables_["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "1";
  EXPECT_EQ(default_threads(topology, lookup()), std::max(1, cores - 1));
  variables_["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "4096";
  EXPECT_EQ(default_threads(topology, lookup()), 1);
  variables_["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "-1";
  EXPECT_THROW(default_threads(topology, lookup()), Error);
}

}  // namespace
}  // namespace gristmill::config
