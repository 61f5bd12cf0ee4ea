// One prepared task as a file: what it is of, a checksum over all, and the task, packed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "evaluator/service/packed.h"
#include "evaluator/service/prepared_task.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::service {

/// What an entry is of; its file's name is this in hexadecimal.
using PreparationKey = Sha256Digest;

/// A larger one is neither written nor read.
inline constexpr std::uint64_t kMostEntryBytes = std::uint64_t{1} << 30U;

/// Packs a task document by document, as it is prepared, so that no second copy of it is held.
class PreparedTaskPacker {
 public:
  /// In the order of PreparedTask::documents. `pictures`: of the document's prompt.
  void add(const PreparedDocument& document, std::span<const PreparedPicture> pictures);
  /// What is packed, for write_prepared(). `task`: without pictures and documents.
  std::string finish(const PreparedTask& task);
  /// Bytes so far.
  std::uint64_t size() const { return documents_.bytes().size(); }

 private:
  PackedWriter documents_;
  std::map<Sha256Digest, std::size_t> pictures_;
  std::uint64_t count_ = 0;
};

/// Bytes of the file.
std::uint64_t prepared_bytes(std::string_view packed);
/// Appends the entry to a new file.
Status write_prepared(WritableFile& file, const PreparationKey& key, std::string_view packed);
/// kCorruption for a file that is not an entry, is torn, was changed, or is of another key.
Result<PreparedTask> read_prepared(const ReadableFile& file, const PreparationKey& key,
                                   const std::string& path);

}  // namespace evalcar::service
