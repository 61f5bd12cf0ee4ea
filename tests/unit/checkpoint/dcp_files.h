// Builds folders of torch.distributed.checkpoint by hand: the pickle of `.metadata`, and items.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/unit/checkpoint/torch_files.h"

namespace evalcar::checkpoint::testing {

inline const std::string kDcpModule = "torch.distributed.checkpoint.metadata";
inline const std::string kDcpFiles = "torch.distributed.checkpoint.filesystem";

inline std::string p_size(const std::vector<std::int64_t>& sizes) {
  return p_call(p_global("torch", "Size"), p_tuple({p_ints(sizes)}));
}

/// One chunk of one tensor, in a data file. Its bytes are a torch.save of float32.
struct DcpPiece {
  std::string key;
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;
  std::string file;
  std::string elements;                   ///< in the order of `stride`
  std::vector<std::int64_t> stride = {};  ///< empty: row-major
};

/// A memory format, as Python 3.11.0 to 3.11.3 writes a member of an enumeration; others write its
/// number.
inline std::string p_format_by_name() {
  return p_call(
      p_global("builtins", "getattr"),
      p_tuple({p_global(kDcpModule, "_MEM_FORMAT_ENCODING"), p_text("TORCH_CONTIGUOUS_FORMAT")}));
}
inline std::string p_format_by_number() {
  return p_call(p_global(kDcpModule, "_MEM_FORMAT_ENCODING"), p_tuple({p_int(0)}));
}

/// A checkpoint of float32 tensors: their shapes by key, and the pieces that lie in files.
struct DcpText {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::vector<DcpPiece> pieces;
  std::map<std::string, std::vector<std::string>> paths;  ///< planner_data
  std::map<std::string, std::string> data;                ///< files as build() leaves them
  std::string format = p_format_by_number();

  /// The pickle of `.metadata`; the data files go to `data`.
  std::string build() {
    std::string entries = "}";
    std::string storage = "}";
    for (const auto& [key, shape] : shapes) {
      std::string chunks = "](";
      for (const DcpPiece& piece : pieces) {
        if (piece.key != key) continue;
        chunks +=
            p_object(p_global(kDcpModule, "ChunkStorageMetadata"),
                     p_dict({{"offsets", p_size(piece.start)}, {"sizes", p_size(piece.size)}}));
      }
      entries += p_text(key) + tensor_text(shape, chunks + "e") + "s";
    }
    for (const DcpPiece& piece : pieces) {
      std::string& file = data[piece.file];
      const std::string item = item_bytes(piece);
      storage += p_object(p_global(kDcpModule, "MetadataIndex"),
                          p_dict({{"fqn", p_text(piece.key)}, {"offset", p_size(piece.start)}}));
      storage += p_object(p_global(kDcpFiles, "_StorageInfo"),
                          p_dict({{"relative_path", p_text(piece.file)},
                                  {"offset", p_int(static_cast<std::int64_t>(file.size()))},
                                  {"length", p_int(static_cast<std::int64_t>(item.size()))}}));
      storage += "s";
      file += item;
    }
    std::string planner = "}";
    for (const auto& [key, path] : paths) {
      std::vector<std::string> parts;
      for (const std::string& part : path) parts.push_back(p_text(part));
      planner += p_text(key) + p_tuple(parts) + "s";
    }
    return p_whole(
        p_object(p_global(kDcpModule, "Metadata"), p_dict({{"state_dict_metadata", entries},
                                                           {"planner_data", planner},
                                                           {"storage_data", storage}})));
  }

 private:
  std::string tensor_text(const std::vector<std::int64_t>& shape, const std::string& chunks) const {
    const std::string layout =
        p_call(p_global("torch.serialization", "_get_layout"), p_tuple({p_text("torch.strided")}));
    const std::string properties =
        p_object(p_global(kDcpModule, "TensorProperties"),
                 p_tuple({p_global("torch", "float32"), layout, "\x89", format, "\x89"}));
    return p_object(
        p_global(kDcpModule, "TensorStorageMetadata"),
        p_dict({{"properties", properties}, {"size", p_size(shape)}, {"chunks", chunks}}));
  }

  static std::string item_bytes(const DcpPiece& piece) {
    std::vector<std::int64_t> stride = piece.stride;
    if (stride.empty()) {
      std::int64_t step = 1;
      stride.assign(piece.size.size(), 1);
      for (std::size_t d = piece.size.size(); d-- > 0;) {
        stride[d] = step;
        step *= std::max<std::int64_t>(piece.size[d], 1);
      }
    }
    const TensorText tensor{.numel = static_cast<std::int64_t>(piece.elements.size() / 4),
                            .size = piece.size,
                            .stride = stride};
    return make_zip(torch_parts(p_whole(tensor.text()), {{"0", piece.elements}}));
  }
};

}  // namespace evalcar::checkpoint::testing
