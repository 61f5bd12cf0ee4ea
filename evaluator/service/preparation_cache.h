// Prepared tasks on the disk, shared by all checkpoints, runs and evaluators of a machine: from the
// second checkpoint on a task's rows are not read, its prompts not rendered and tokenized, its
// pictures not hashed.
//
// An entry's name is a hash of all that the task follows from beside pictures that documents name
// and the rest of what was read: those it lists itself, and it is used only while each of them is
// what it was. It is published by rename and carries checksums; there is no index and no fsync:
// what a crash leaves is whole, or is seen to be damaged and made anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "evaluator/service/prepared_entry.h"
#include "evaluator/service/prepared_task.h"
#include "evaluator/service/read_record.h"
#include "evaluator/vision/file_shelf.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"

namespace evalcar::service {

struct PreparationCacheOptions {
  std::string folder;           ///< is made when it is needed
  std::uint64_t bytes = 0;      ///< of all entries together, about
  std::uint64_t keep_free = 0;  ///< of the disk, for the others who write there
  std::string made_by;          ///< pixel_makers(): another build may prepare otherwise
};

/// Thread-safe, and safe beside other processes with the same folder. Nothing that goes wrong here
/// is an error of the evaluation: a task that is not found is prepared, one that cannot be kept is
/// not (FileShelf), and the first such failure of a kind is a warning on stderr.
class PreparationCache {
 public:
  /// `files`, for the entries, and `clock` must outlive it.
  PreparationCache(FileSystem& files, const Clock& clock, PreparationCacheOptions options);

  /// `data`: identify_data(). `common`: common_identity(), of which not all is needed, but nothing
  /// is forgotten so. `generation`: the effective settings of an answer.
  PreparationKey key_of(const Sha256Digest& data, std::string_view common,
                        std::string_view generation) const;
  /// The task, if it is there and the files that it was made of are still the same. `data_files`:
  /// what those are looked at through. Not found soon after `stop`.
  std::optional<PreparedTask> find(const PreparationKey& key, const FileSystem& data_files,
                                   const std::stop_token& stop = {});
  /// What a task that may be kept is read through. `data_files` must outlive it.
  std::unique_ptr<ReadRecord> record(const FileSystem& data_files) const {
    return std::make_unique<ReadRecord>(data_files, clock_);
  }
  /// No packed task of more bytes is kept.
  std::uint64_t most_bytes() const { return most_bytes_; }
  /// Keeps it for the next time, if `read` proves what it was made of. `task`: without pictures and
  /// documents, which are in `packer`.
  void keep(const PreparationKey& key, PreparedTask task, PreparedTaskPacker packer,
            const ReadRecord& read, const std::stop_token& stop = {});

 private:
  FileSystem& files_;
  const Clock& clock_;
  vision::FileShelf shelf_;
  const std::uint64_t most_bytes_;
  const std::string made_by_;
  std::atomic<bool> told_damage_ = false;
};

}  // namespace evalcar::service
