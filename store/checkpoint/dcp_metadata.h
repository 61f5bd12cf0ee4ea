// What `.metadata` of torch.distributed.checkpoint says: where the chunks of every tensor of the
// model lie. It is a pickle of torch.distributed.checkpoint.metadata.Metadata (torch 2.1 to 2.15);
// without collectives every rank writes one of its own, `__<rank>.metadata`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/dcp_entries.h"
#include "store/checkpoint/dcp_source.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Bytes of a data file: one torch.save of one chunk, or anything at all that is no tensor.
struct DcpItem {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct DcpFile {
  std::string name;            ///< a plain name in the same folder
  std::vector<DcpItem> items;  ///< by offset; they follow each other from byte 0
  bool has_weights = false;

  std::uint64_t size() const {
    return items.empty() ? 0 : items.back().offset + items.back().length;
  }
};

struct DcpMetadata {
  std::vector<DcpFile> files;
  /// The weights, checked to be tiled by their chunks. A piece's `file` is an index into `files`,
  /// its `file_offset` that of its item (not of its elements), its strides are not known.
  std::vector<TensorPlan> weights;
  std::vector<std::string> extra_states;  ///< keys, as Plan::extra_states
  std::vector<std::string> left_out;      ///< as Plan::left_out
};

/// Reads one or several metadata files. Peak memory: six times their size while one is parsed (real
/// files: three times), and what they name is limited by their size.
class DcpMetadataReader {
 public:
  /// Adds one file's content. kCorruption with `where` and the byte of the entry's name for what
  /// contradicts itself, leaves the folder, or names what a checkpoint has no need for;
  /// kUnsupported for sparse tensors.
  Status add(std::string bytes, const std::string& where);
  /// After the last add(), once. kCorruption where chunks leave gaps or overlap; kUnsupported, by
  /// name, for a transform (compression) of a weight's chunk.
  Result<DcpMetadata> finish();

 private:
  /// A chunk with elements; its start and size are in dims_.
  struct Chunk {
    std::uint32_t entry = 0;  // index into entries_
    std::uint32_t file = 0;   // index into files_
    std::uint64_t offset = 0;
    std::size_t dims = 0;
  };

  Status add_chunks(DcpSource& source);
  Status add_items(DcpSource& source);
  Status match(DcpSource& source);
  Status match_one(const DcpSource& source, std::size_t chunk, std::size_t& item,
                   std::vector<bool>& used);
  Result<std::uint32_t> file_index(const DcpSource& source, Pickle::NodeId name);
  Status check_files(const std::string& where);
  Result<TensorPlan> take_tensor(std::size_t entry, std::string name);

  DcpEntries entries_;
  std::deque<Chunk> chunks_;
  std::deque<std::int64_t> dims_;
  std::map<std::uint32_t, std::string> transforms_;  // by entry; of some
  std::vector<DcpFile> files_;
  std::map<std::string, std::uint32_t, std::less<>> by_file_;
  std::vector<std::string> sources_;  // where
};

}  // namespace evalcar::checkpoint
