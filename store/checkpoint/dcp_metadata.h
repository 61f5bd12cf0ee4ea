// What `.metadata` of torch.distributed.checkpoint says: where the chunks of every tensor of the
// model lie. It is a pickle of torch.distributed.checkpoint.metadata.Metadata (torch 2.1 to 2.11);
// without collectives every rank writes one of its own, `__<rank>.metadata`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/dcp_names.h"
#include "store/checkpoint/pickle.h"
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
};

/// Reads one or several metadata files.
class DcpMetadataReader {
 public:
  /// Adds one file's content. kCorruption with `where` and the byte of the entry's name for what
  /// contradicts itself, leaves the folder, or names what a checkpoint has no need for;
  /// kUnsupported for sparse tensors.
  Status add(std::string bytes, const std::string& where);
  /// After the last add(). kCorruption where chunks leave gaps or overlap; kUnsupported, by name,
  /// for a transform (compression) of a weight's chunk.
  Result<DcpMetadata> finish();

 private:
  struct Chunk {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> size;
    std::size_t file = 0;  // of a chunk with elements
    DcpItem item;
    std::string transform;
  };
  struct Entry {
    std::string key;
    DcpPath path;  // as planner_data has it; empty: not told
    bool is_tensor = false;
    bool is_described = false;  // dtype and shape are known
    DType dtype = DType::kFloat32;
    std::vector<std::int64_t> shape;
    std::vector<Chunk> chunks;
    std::string where;  // the file and byte that name it first
  };
  struct Source;  // one file that is being added

  Status add_entries(Source& source);
  Status add_tensor(const Source& source, Pickle::NodeId value, Entry& entry);
  Status add_chunks(Source& source);
  Status add_paths(const Source& source);
  void choose(Source& source) const;
  Status add_items(Source& source);
  Status match(Source& source);
  Result<std::size_t> file_index(const Source& source, Pickle::NodeId name);
  Status check_files(const std::string& where);

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_key_;
  std::vector<DcpFile> files_;
  std::map<std::string, std::size_t, std::less<>> by_file_;
  std::string where_;  // the last source
};

}  // namespace evalcar::checkpoint
