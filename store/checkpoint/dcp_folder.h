// A folder of torch.distributed.checkpoint: its metadata files, and whether its data files are the
// ones they speak of.
#pragma once

#include <string>
#include <vector>

#include "store/checkpoint/dcp_metadata.h"
#include "store/checkpoint/folder.h"

namespace evalcar::checkpoint {

/// Whether a folder holds files of torch.distributed.checkpoint.
bool holds_dcp(const Folder& folder);

struct DcpFolder {
  DcpMetadata metadata;
  std::vector<PlanFile> metadata_files;  ///< `.metadata`, or `__R.metadata` of every rank
  int world_size = 0;  ///< from the names of data files; 0 where they tell nothing
};

/// Reads the metadata and checks the data files that hold weights against it. kUnavailable while
/// the checkpoint is written: `.metadata` is its last file, so a data file that ends before its
/// items do, or is newer than `.metadata` while others are not, is being written anew (or was
/// copied without its times, which the message says). kCorruption as DcpMetadataReader, and for
/// data files that are longer than their items, or no files.
Result<DcpFolder> read_dcp_folder(const FileSystem& files, const Folder& folder);

/// The files of it that hold weights, then those of its metadata, each below `prefix` (may be
/// empty). In this order a copy has its times in the right order, too.
std::vector<std::string> files_to_read(const DcpFolder& dcp, const std::string& prefix);

/// dcp_plan.cpp: the plan of such a folder; opens every item that holds weights. Errors as above
/// and as TorchFile::read, naming file and item.
Result<Plan> plan_dcp(const FileSystem& files, const Folder& folder, WeightsKind kind);

}  // namespace evalcar::checkpoint
