// Writes the files of weights of a merged folder, each tensor in the cheapest way that it allows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/copy_readahead.h"
#include "store/checkpoint/merge.h"
#include "store/checkpoint/merge_copy.h"
#include "store/checkpoint/merge_output.h"
#include "store/checkpoint/merge_pipeline.h"
#include "store/checkpoint/safetensors.h"

namespace evalcar::checkpoint {

/// What a stream of bytes is compared by, however it is cut.
class StreamHash {
 public:
  void update(std::span<const std::byte> bytes);
  bool operator==(const StreamHash&) const = default;
  /// An order for sets of them.
  bool operator<(const StreamHash& other) const {
    return std::tie(blocks_, rest_) < std::tie(other.blocks_, other.rest_);
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 16U;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::byte> rest_;
};

/// Which stored output heads differ from every input embedding, told by their bytes as they are
/// written: a model may have further ones, of another vocabulary or part. Another dtype or shape
/// differs, too; a model without a stored head ties in any case.
class TieCheck {
 public:
  TieCheck(const Plan& plan, const std::optional<DType>& cast);

  /// Whether the bytes of this tensor are wanted.
  bool needs(std::size_t tensor) const { return hashes_.contains(tensor); }
  void saw(std::size_t tensor, std::span<const std::byte> bytes);
  /// After all tensors were seen: indices in the plan, sorted.
  std::vector<std::size_t> differing_heads() const;

 private:
  /// What may be equal: of one dtype and shape. There may be very many, by a file that lies.
  struct Alike {
    std::vector<std::size_t> heads;
    std::vector<std::size_t> embeddings;
  };
  std::vector<Alike> alike_;
  std::map<std::size_t, StreamHash> hashes_;  // of both
  std::vector<std::size_t> differing_;        // whatever the bytes
};

/// The tensors of one output file as its header has them.
std::vector<SafetensorsTensor> tensors_of(const Plan& plan, const MergedFile& file,
                                          const std::optional<DType>& cast);

class WeightsWriter {
 public:
  /// All three outlive it.
  WeightsWriter(FileSystem& files, const MergeRequest& request, const MergeSource& source);

  /// Writes and syncs one file; errors as merge().
  Status write(const MergedFile& file, const std::string& path);
  /// Of everything written: the names of the heads that differ from every embedding.
  std::vector<std::string> differing_heads() const;

 private:
  /// Empty where the tensor has to be read.
  std::vector<CopyRange> ranges_of(std::size_t tensor) const;
  Result<std::string> header_of(const MergedFile& file) const;
  /// Of a file that is written to `path`.
  CopyReadahead readahead_of(const MergedFile& file, const std::string& path) const;
  Status read_and_write(const std::vector<MergeChunk>& chunks, MergeOutput& out);
  /// False, with nothing written: the bytes have to be read, of this tensor and all others.
  Result<bool> copy(const std::vector<CopyRange>& ranges, MergeOutput& out);
  Status append_by_hand(const CopyRange& range, MergeOutput& out);
  Status wrote(std::uint64_t bytes);

  FileSystem& files_;
  const MergeRequest& request_;
  const MergeSource& source_;
  TieCheck ties_;
  CopyReadahead readahead_;  // of the file that is being written
  bool copies_ = true;       // until the file systems say that they do not
  std::uint64_t bytes_ = 0;
};

}  // namespace evalcar::checkpoint
