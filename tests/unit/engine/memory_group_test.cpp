#include "evaluator/engine/memory_group.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/engine/group_files.h"

using namespace evalcar;
using engine::group_memory;

namespace {

struct Machine : test::GroupFiles {
  auto memory() const { return group_memory(root()); }
};

}  // namespace

TEST_CASE("a service's own group limits it, and the least of all groups above counts") {
  Machine machine;
  machine.put("/proc/self/cgroup", "0::/system.slice/evalcar@x.service\n");
  const std::string slice = "/sys/fs/cgroup/system.slice/";
  machine.put(slice + "evalcar@x.service/memory.max", "8000\n");
  machine.put(slice + "evalcar@x.service/memory.high", "6000\n");
  machine.put(slice + "evalcar@x.service/memory.current", "1500\n");
  machine.put(slice + "evalcar@x.service/memory.stat", "anon 1000\ninactive_file 500\n");

  REQUIRE(machine.memory().has_value());
  CHECK(machine.memory()->total == 6000);
  CHECK(machine.memory()->available == 5000);

  machine.put(slice + "memory.max", "7000\n");
  machine.put(slice + "memory.current", "4000\n");
  CHECK(machine.memory()->total == 6000);
  CHECK(machine.memory()->available == 3000);
}

TEST_CASE("a container sees its limit at the top of what it sees") {
  Machine machine;
  machine.put("/proc/self/cgroup", "0::/\n");
  machine.put("/sys/fs/cgroup/memory.max", "9000\n");
  machine.put("/sys/fs/cgroup/memory.current", "9500\n");

  REQUIRE(machine.memory().has_value());
  CHECK(machine.memory()->available == 0);
}

TEST_CASE("the first version of control groups is asked by its names") {
  Machine machine;
  machine.put("/proc/self/cgroup",
              "5:cpu,cpuacct:/job\n4:memory:/slurm/job_1\n1:name=systemd:/x\n");
  const std::string job = "/sys/fs/cgroup/memory/slurm/job_1/";
  machine.put(job + "memory.limit_in_bytes", "4096\n");
  machine.put(job + "memory.usage_in_bytes", "1096\n");
  machine.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");

  REQUIRE(machine.memory().has_value());
  CHECK(machine.memory()->available == 3000);
  CHECK(machine.memory()->total == 4096);
}

TEST_CASE(
    "where nothing limits memory, or the files are not what they should be, there is no group") {
  Machine machine;
  CHECK_FALSE(machine.memory().has_value());
  machine.put("/proc/self/cgroup", "nonsense\n0:\n0::relative\n0::/a\n");
  machine.put("/sys/fs/cgroup/a/memory.max", "max\n");
  machine.put("/sys/fs/cgroup/a/memory.current", "12\n");
  CHECK_FALSE(machine.memory().has_value());
}
