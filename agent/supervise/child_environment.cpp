#include "agent/supervise/child_environment.h"

#include <algorithm>
#include <array>

namespace evalcar::supervise {
namespace {

constexpr std::array<std::string_view, 15> kNames = {
    "RANK",       "WORLD_SIZE",  "LOCAL_RANK",      "LOCAL_WORLD_SIZE", "NODE_RANK",
    "GROUP_RANK", "ROLE_RANK",   "ROLE_WORLD_SIZE", "ROLE_NAME",        "GROUP_WORLD_SIZE",
    "CROSS_RANK", "MASTER_ADDR", "MASTER_PORT",     "LOCAL_SIZE",       "NODE_SIZE"};
// Slurm's, torchrun's and the trainers' own, then those of MPI's launchers: Open MPI, Hydra (MPICH,
// Intel), PMIx, MVAPICH, Horovod, Cray PALS, LSF's jsrun, Flux.
constexpr std::array kPrefixes = std::to_array<std::string_view>(
    {"SLURM_", "TORCHELASTIC_", "ACCELERATE_", "FSDP_", "DEEPSPEED_", "OMPI_", "PMI_", "PMIX_",
     "MPI_LOCAL", "MV2_COMM_WORLD_", "HOROVOD_", "PALS_", "JSM_NAMESPACE_", "FLUX_TASK_"});

/// How often a thread of libgomp, which libtorch brings along, asks whether the others have come
/// before it sleeps; 300,000 by default. On two cores that two others kept busy the evaluation of a
/// small model took 180 s with that and 50 s with this; alone, 3.0 s and 3.2 s.
constexpr std::string_view kSpinCount = "GOMP_SPINCOUNT=10000";

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

}  // namespace

bool is_rank_variable(std::string_view name) {
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> child_environment(const char* const* environment) {
  std::vector<std::string> kept;
  bool says_how_to_wait = false;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view name = name_of(*environment);
    if (is_rank_variable(name)) continue;
    says_how_to_wait |= name == "GOMP_SPINCOUNT" || name == "OMP_WAIT_POLICY";
    kept.emplace_back(*environment);
  }
  if (!says_how_to_wait) kept.emplace_back(kSpinCount);
  return kept;
}

std::vector<std::string> rank_variables(const char* const* environment) {
  std::vector<std::string> found;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (is_rank_variable(name_of(*environment))) found.emplace_back(*environment);
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace evalcar::supervise
