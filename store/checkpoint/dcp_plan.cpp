// The plan of a torch.distributed.checkpoint: each chunk is a torch.save of one plain tensor at an
// offset of its data file. Where its elements are, and in what order, its own header says.
#include <algorithm>
#include <tuple>

#include "store/checkpoint/dcp_folder.h"
#include "store/checkpoint/file_window.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {
namespace {

/// One chunk that is to be looked up: where, and whose.
struct Lookup {
  std::size_t file = 0;  // of the metadata
  std::uint64_t offset = 0;
  std::size_t tensor = 0;
  std::size_t piece = 0;
};

class ChunkReader {
 public:
  ChunkReader(const FileSystem& files, const Folder& folder, DcpMetadata metadata, Plan& plan)
      : files_(files), folder_(folder), metadata_(std::move(metadata)), plan_(plan) {}

  Status read_all() {
    std::vector<Lookup> lookups;
    for (std::size_t t = 0; t < metadata_.weights.size(); ++t) {
      const auto& pieces = metadata_.weights[t].pieces;
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        lookups.push_back({pieces[p].file, pieces[p].file_offset, t, p});
      }
    }
    std::sort(lookups.begin(), lookups.end(), [](const Lookup& a, const Lookup& b) {
      return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
    });
    for (auto begin = lookups.begin(); begin != lookups.end();) {
      const auto end = std::find_if(begin, lookups.end(),
                                    [&](const Lookup& l) { return l.file != begin->file; });
      EVALCAR_RETURN_IF_ERROR(read_file(std::span(begin, end)));
      begin = end;
    }
    plan_.tensors = std::move(metadata_.weights);
    return {};
  }

 private:
  Status read_file(std::span<const Lookup> lookups) {
    const DcpFile& known = metadata_.files[lookups.front().file];
    const std::string path = join_path(folder_.path, known.name);
    EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files_, folder_.path, known.name));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
    plan_.files.push_back({path, identity});
    for (const Lookup& lookup : lookups) {
      const auto item = std::lower_bound(known.items.begin(), known.items.end(), lookup.offset,
                                         [](const DcpItem& a, std::uint64_t offset) {
                                           return std::pair(a.offset, a.length) <
                                                  std::pair(offset, std::uint64_t{1});
                                         });
      if (item == known.items.end() || item->offset != lookup.offset) {
        return make_error(ErrorCode::kCorruption, path + ": the item at byte " +
                                                      std::to_string(lookup.offset) + " is empty");
      }
      EVALCAR_RETURN_IF_ERROR(read_item(*file, path, *item, lookup));
    }
    return check_unchanged(*file, identity, path);
  }

  Status read_item(const ReadableFile& file, const std::string& path, const DcpItem& item,
                   const Lookup& lookup) {
    TensorPlan& tensor = metadata_.weights[lookup.tensor];
    Piece& piece = tensor.pieces[lookup.piece];
    const std::string where = path + " (item at byte " + std::to_string(item.offset) + ")";
    EVALCAR_ASSIGN_OR_RETURN(const FileWindow window,
                             FileWindow::open(file, item.offset, item.length, path));
    auto read = TorchFile::read(window, where);
    if (!read.has_value()) {
      // The file has its whole size: what is missing of an item will not come.
      Error error = read.error();
      if (error.code == ErrorCode::kUnavailable) error.code = ErrorCode::kCorruption;
      return error;
    }
    EVALCAR_ASSIGN_OR_RETURN(const StoredTensor stored,
                             read_stored_tensor(*read, read->pickle.root(), tensor.name));
    if (stored.dtype != tensor.dtype || stored.size != piece.size) {
      return read->corrupt(tensor.name, "is " + std::string(dtype_name(stored.dtype)) + " " +
                                            shape_text(stored.size) + " there, expected " +
                                            std::string(dtype_name(tensor.dtype)) + " " +
                                            shape_text(piece.size) + " from the metadata");
    }
    piece.file = plan_.files.size() - 1;
    piece.file_offset = item.offset + stored.file_offset;
    piece.stride_elements = stored.stride;
    if (read->zip.has_checksums()) {
      plan_.records.push_back({piece.file, item.offset + stored.record.offset, stored.record.size,
                               stored.record.crc32});
    }
    return {};
  }

  const FileSystem& files_;
  const Folder& folder_;
  DcpMetadata metadata_;
  Plan& plan_;
};

}  // namespace

Result<Plan> plan_dcp(const FileSystem& files, const Folder& folder, WeightsKind kind) {
  EVALCAR_ASSIGN_OR_RETURN(DcpFolder read, read_dcp_folder(files, folder));
  Plan plan;
  plan.layout = Layout::kDcp;
  plan.kind = kind;
  plan.world_size = read.world_size;
  // First, so that PlanReader sees when they are replaced: another save.
  plan.files = std::move(read.metadata_files);
  plan.extra_states = std::move(read.metadata.extra_states);
  plan.left_out = std::move(read.metadata.left_out);
  ChunkReader reader(files, folder, std::move(read.metadata), plan);
  EVALCAR_RETURN_IF_ERROR(reader.read_all());
  if (Status settled = settle_names(plan); !settled.has_value()) {
    return with_context(settled.error(), folder.path);
  }
  return plan;
}

}  // namespace evalcar::checkpoint
