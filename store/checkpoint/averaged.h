// A folder of several checkpoints whose weights are averaged: what a lease for an average looks
// like.
//
//   members.json            {"members":["480","490","500"]}: oldest first
//   members/<name>/…        each like a checkpoint of its own
//   config.json, …          the newest one's files beside the weights
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/low_rank.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

inline constexpr const char* kMembersFile = "members.json";
inline constexpr const char* kMembersFolder = "members";

/// The text of the members' file.
std::string members_json(std::span<const std::string> names);

/// The names in the members' file of `folder`. kUnavailable if it is not there; kCorruption where
/// it is not such a list, a name comes twice, or it could lead out of the folder.
Result<std::vector<std::string>> read_members(const FileSystem& files, const std::string& folder);

/// The refusal to average a float8 tensor.
Error not_averaged(const TensorPlan& tensor);

/// One plan whose tensors are the means of the same tensors of `plans`: floats and complex numbers
/// are summed in float64 and rounded once; of integers and truth values the last plan's are taken;
/// several of float8 are kUnsupported. Its files are those of all plans. kInvalidArgument if names,
/// shapes or dtypes differ, or there is no plan. Tied tensors are told as such where all plans tie
/// them.
Result<Plan> mean_of(std::vector<Plan> plans);

/// Fills `out` with the elements of `box` of a tensor that is a mean: contiguous and row-major.
/// `read` gives those of a member. Thread-safe if `read` is. Memory: some MiB.
Status read_mean(const TensorPlan& tensor, const Box& box, const BoxReader& read,
                 std::span<std::byte> out);

}  // namespace evalcar::checkpoint
