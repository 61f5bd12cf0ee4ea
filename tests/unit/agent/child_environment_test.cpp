#include "agent/supervise/child_environment.h"

#include <catch2/catch_test_macros.hpp>

#include "agent/supervise/line_quota.h"

using namespace evalcar;
using namespace evalcar::supervise;

namespace {

constexpr const char* kEnvironment[] = {"PATH=/bin",
                                        "RANK=3",
                                        "LOCAL_RANK=1",
                                        "WORLD_SIZE=8",
                                        "MASTER_ADDR=10.0.0.1",
                                        "CUDA_VISIBLE_DEVICES=7",
                                        "SLURM_PROCID=3",
                                        "SLURM_JOB_ID=17",
                                        "TORCHELASTIC_RUN_ID=x",
                                        "OMPI_COMM_WORLD_RANK=3",
                                        "PMI_RANK=3",
                                        "MV2_COMM_WORLD_LOCAL_RANK=1",
                                        "HOROVOD_RANK=3",
                                        "PALS_RANKID=3",
                                        "JSM_NAMESPACE_RANK=3",
                                        "FLUX_TASK_RANK=3",
                                        "FLUX_URI=local:///x",
                                        "RANKING=no rank",
                                        "ODD",
                                        nullptr};

}  // namespace

TEST_CASE("a child learns which GPU is ours, and not which rank of the trainer we stand beside") {
  CHECK(child_environment(kEnvironment) ==
        std::vector<std::string>{"PATH=/bin", "CUDA_VISIBLE_DEVICES=7", "FLUX_URI=local:///x",
                                 "RANKING=no rank", "ODD", "GOMP_SPINCOUNT=10000"});
  CHECK(rank_variables(kEnvironment) ==
        std::vector<std::string>{"FLUX_TASK_RANK=3", "HOROVOD_RANK=3", "JSM_NAMESPACE_RANK=3",
                                 "LOCAL_RANK=1", "MASTER_ADDR=10.0.0.1",
                                 "MV2_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_RANK=3",
                                 "PALS_RANKID=3", "PMI_RANK=3", "RANK=3", "SLURM_JOB_ID=17",
                                 "SLURM_PROCID=3", "TORCHELASTIC_RUN_ID=x", "WORLD_SIZE=8"});
  CHECK(rank_variables(nullptr).empty());
}

TEST_CASE("a child's threads do not spin long for each other, unless the user says how they wait") {
  CHECK(child_environment(nullptr) == std::vector<std::string>{"GOMP_SPINCOUNT=10000"});
  for (const char* const said : {"GOMP_SPINCOUNT=infinite", "OMP_WAIT_POLICY=active"}) {
    const char* const environment[] = {said, nullptr};
    CHECK(child_environment(environment) == std::vector<std::string>{said});
  }
}

TEST_CASE("a child that repeats itself gets so many lines a minute, and is told of the rest once") {
  LineQuota quota;
  const MonotonicTime start{};
  std::int64_t left_out = -1;
  for (int line = 0; line < LineQuota::kLines; ++line) CHECK(quota.take(start, left_out));
  for (int line = 0; line < 30; ++line) CHECK_FALSE(quota.take(start, left_out));
  CHECK(left_out == 0);
  CHECK_FALSE(quota.take(start + LineQuota::kPeriod - std::chrono::seconds(1), left_out));

  CHECK(quota.take(start + LineQuota::kPeriod, left_out));
  CHECK(left_out == 31);
  CHECK(quota.take(start + LineQuota::kPeriod, left_out));
  CHECK(left_out == 0);
}
