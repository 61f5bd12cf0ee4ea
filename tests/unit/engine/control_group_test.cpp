#include "evaluator/engine/control_group.h"

#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "tests/unit/engine/group_files.h"

using namespace evalcar;

namespace {

struct Machine : test::GroupFiles {
  std::optional<int> cores() const { return engine::group_cores(root()); }
};

}  // namespace

TEST_CASE(
    "a quota of processor time counts as so many cores, rounded up, the least of all groups") {
  Machine machine;
  machine.put("/proc/self/cgroup", "0::/pods/evalcar\n");
  machine.put("/sys/fs/cgroup/pods/evalcar/cpu.max", "450000 100000\n");
  CHECK(machine.cores() == 5);
  machine.put("/sys/fs/cgroup/pods/cpu.max", "max 100000\n");
  CHECK(machine.cores() == 5);
  machine.put("/sys/fs/cgroup/cpu.max", "10000 100000\n");
  CHECK(machine.cores() == 1);
}

TEST_CASE("the first version's quota is asked by its names, and -1 is none") {
  Machine machine;
  machine.put("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/slurm/job_1\n");
  const std::string job = "/sys/fs/cgroup/cpu/slurm/job_1/";
  machine.put(job + "cpu.cfs_quota_us", "-1\n");
  machine.put(job + "cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(machine.cores().has_value());
  machine.put(job + "cpu.cfs_quota_us", "300000\n");
  CHECK(machine.cores() == 3);
}

TEST_CASE("without a quota, or where the files are not what they should be, there is none") {
  Machine machine;
  CHECK_FALSE(machine.cores().has_value());
  machine.put("/proc/self/cgroup", "nonsense\n0:\n0::relative\n0::/a\n");
  for (const char* text : {"", "max 100000", "100000", "0 100000", "100000 0", "x y"}) {
    machine.put("/sys/fs/cgroup/a/cpu.max", text);
    CHECK_FALSE(machine.cores().has_value());
  }
  machine.put("/sys/fs/cgroup/a/cpu.max", "1e30 1\n");
  CHECK(machine.cores() == 1 << 20);
}
