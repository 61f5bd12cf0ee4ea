// What all layouts ask of a checkpoint's folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/layout.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/plan_budget.h"

namespace evalcar::checkpoint {

/// A listed folder. Entries sorted by name.
struct Folder {
  std::string path;
  std::vector<DirectoryEntry> entries;
  /// A model that a person keeps, not what a trainer wrote: its files may be links to the blobs of
  /// a hub cache (`models--…/blobs/`), wherever that is.
  bool is_kept_model = false;

  bool has(std::string_view name) const;
};

/// Lists `path`; kNotFound if it is not a folder.
Result<Folder> open_folder(const FileSystem& files, const std::string& path);

/// Names of the files beside the weights that an evaluation or a merged folder needs:
/// configuration, tokenizer, processor, chat templates. Relative to the folder.
std::vector<std::string> side_files(const Folder& folder);

/// Whether config.json (and the other small JSON files that are there) can be read. kUnavailable
/// where a file may still grow, kCorruption where it is broken for good.
Status check_side_files(const FileSystem& files, const Folder& folder,
                        const LayoutOptions& options);

/// Opens `folder/name` for reading. A symbolic link is followed only to a file inside the folder,
/// or inside the same repository of a Hugging Face hub cache (snapshots/<rev>/x → blobs/y):
/// kCorruption else, and for anything but a regular file. A missing file is kUnavailable, and so is
/// one that was replaced between the look and the opening.
Result<std::unique_ptr<ReadableFile>> open_inside(const FileSystem& files,
                                                  const std::string& folder,
                                                  const std::string& name);

/// The same; links of a kept model may lead to a hub cache's blobs besides.
Result<std::unique_ptr<ReadableFile>> open_inside(const FileSystem& files, const Folder& folder,
                                                  const std::string& name);

/// The whole of a small file, opened so. kCorruption if it is larger than `limit_bytes`.
Result<std::string> read_inside(const FileSystem& files, const Folder& folder,
                                const std::string& name, std::uint64_t limit_bytes);

/// Whether the folder `folder/name` may be looked into: kCorruption for a link that leads out of
/// `folder`. One that is not there passes.
Status check_folder_inside(const FileSystem& files, const std::string& folder,
                           const std::string& name);

/// kUnavailable unless `file` still is what it was when `before` was taken of it: nobody may have
/// written to it while it was read. `path` is for the message.
Status check_unchanged(const ReadableFile& file, const FileInfo& before, const std::string& path);

/// Whether a file name out of a file stays in its folder: no separator, no "..", at most 255 bytes.
bool is_plain_name(std::string_view name);

/// Sets `tied_to` of tensors that share the very same bytes of the same files with one before.
void find_ties(Plan& plan);

/// torch_file_plan.cpp: adds a torch.save file of one whole state_dict and its tensors. Errors as
/// TorchFile::read; kUnsupported for an entry that is not a plain tensor, kCorruption for more than
/// the budget allows.
Status add_torch_file(const FileSystem& files, const Folder& folder, const std::string& name,
                      PlanBudget& budget, Plan& plan);

/// hugging_face.cpp: adds a safetensors file and its tensors. Errors as read_safetensors.
Status add_safetensors_file(const FileSystem& files, const Folder& folder, const std::string& name,
                            Plan& plan);

/// hugging_face.cpp: the file that a Hugging Face folder's weights begin at.
struct WeightsEntry {
  std::string name;  ///< of the one file, or of the index
  bool is_index = false;
};
/// In transformers' order of preference: safetensors before .bin, a single file before an index;
/// then accelerate's `pytorch_model_fsdp.bin`. Shards without their index name the index that is
/// missing. Absent: no such layout.
std::optional<WeightsEntry> hugging_face_entry(const Folder& folder);
/// hugging_face.cpp: `model.safetensors`, `pytorch_model.bin`, shards of either with an index, or
/// `pytorch_model_fsdp.bin`.
Result<Plan> plan_hugging_face(const FileSystem& files, const Folder& folder);
/// fsdp2_plan.cpp: shards of one kind. `plan.world_size` is set.
Result<Plan> plan_fsdp2(const FileSystem& files, const std::string& shard_folder, WeightsKind kind);
/// fsdp2_plan.cpp: whether all W files `<stem>_world_size_W_rank_R.pt` of a folder are whole.
struct ShardSet {
  int world_size = 0;              ///< 0: the folder holds no shard
  std::vector<std::string> names;  ///< by rank; complete only if `status` is good
  Status status;                   ///< why the set is not whole
};
ShardSet judge_shards(const FileSystem& files, const std::string& shard_folder,
                      std::string_view stem);

/// The larger JSON files are bounded too.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20U;
inline constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{100} << 20U;

}  // namespace evalcar::checkpoint
