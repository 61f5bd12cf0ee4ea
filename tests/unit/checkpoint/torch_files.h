// Builds torch.save files by hand: a ZIP as torch writes it, and pickles opcode by opcode. Each
// part can be made wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint/crc32.h"
#include "store/checkpoint/torch_zip.h"
#include "tests/unit/checkpoint/support.h"

namespace evalcar::checkpoint::testing {

inline std::string le(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xffU));
  return text;
}

/// One record, with every header field that a test may want to falsify.
struct ZipPart {
  std::string name;
  std::string data;
  std::string local_name;        // in the local header; empty: the same
  std::uint16_t flags = 0x0808;  // in both headers
  std::uint16_t method = 0;
  std::uint64_t claimed_size = UINT64_MAX;  // in the central directory; UINT64_MAX: the true one
  std::uint32_t crc_xor = 0;
  std::uint64_t claimed_offset = UINT64_MAX;
  std::uint16_t local_extra = 0;    // bytes of padding in the local header
  std::uint16_t claimed_extra = 0;  // so many are claimed; 0: as many as there are
  bool in_directory_only = false;   // it lies at `claimed_offset`, in what others wrote
};

struct ZipEnd {
  bool with_64 = true;
  std::uint64_t entries = UINT64_MAX;           // claimed; UINT64_MAX: the true number
  std::uint64_t directory_offset = UINT64_MAX;  // claimed
  std::uint16_t disk = 0;
  std::string comment;
};

inline std::string make_zip(const std::vector<ZipPart>& parts, const ZipEnd& end = {}) {
  std::string file;
  std::string directory;
  for (const ZipPart& part : parts) {
    const std::uint64_t offset = file.size();
    const std::string local_name = part.local_name.empty() ? part.name : part.local_name;
    const std::uint32_t crc = crc32(std::as_bytes(std::span<const char>(part.data))) ^ part.crc_xor;
    const bool deferred = (part.flags & 8U) != 0;
    if (!part.in_directory_only) {
      file += "PK\x03\x04" + le(0, 2) + le(part.flags, 2) + le(part.method, 2) + le(0, 4) +
              le(deferred ? 0 : crc, 4) + le(deferred ? 0 : part.data.size(), 4) +
              le(deferred ? 0 : part.data.size(), 4) + le(local_name.size(), 2) +
              le(part.claimed_extra != 0 ? part.claimed_extra : part.local_extra, 2) + local_name +
              std::string(part.local_extra, 'Z') + part.data;
      if (deferred) {
        file += "PK\x07\x08" + le(crc, 4) + le(part.data.size(), 4) + le(part.data.size(), 4);
      }
    }
    const std::uint64_t size =
        part.claimed_size == UINT64_MAX ? part.data.size() : part.claimed_size;
    const std::uint64_t place = part.claimed_offset == UINT64_MAX ? offset : part.claimed_offset;
    const bool large = size >= UINT32_MAX || place >= UINT32_MAX;
    const std::string extra =
        large ? le(1, 2) + le(24, 2) + le(size, 8) + le(size, 8) + le(place, 8) : "";
    directory += "PK\x01\x02" + le(0, 4) + le(part.flags, 2) + le(part.method, 2) + le(0, 4) +
                 le(crc, 4) + le(large ? UINT32_MAX : size, 4) + le(large ? UINT32_MAX : size, 4) +
                 le(part.name.size(), 2) + le(extra.size(), 2) + le(0, 8) + le(0, 2) +
                 le(large ? UINT32_MAX : place, 4) + part.name + extra;
  }
  const std::uint64_t directory_offset = file.size();
  const std::uint64_t claimed =
      end.directory_offset == UINT64_MAX ? directory_offset : end.directory_offset;
  const std::uint64_t entries = end.entries == UINT64_MAX ? parts.size() : end.entries;
  file += directory;
  if (end.with_64) {
    const std::uint64_t end64 = file.size();
    file += "PK\x06\x06" + le(44, 8) + le(0, 4) + le(0, 8) + le(entries, 8) + le(entries, 8) +
            le(directory.size(), 8) + le(claimed, 8);
    file += "PK\x06\x07" + le(0, 4) + le(end64, 8) + le(1, 4);
  }
  const std::uint64_t small_entries = entries > 0xffff ? 0xffff : entries;
  file += "PK\x05\x06" + le(end.disk, 2) + le(end.disk, 2) + le(small_entries, 2) +
          le(small_entries, 2) + le(directory.size(), 4) +
          le(claimed > UINT32_MAX ? UINT32_MAX : claimed, 4) + le(end.comment.size(), 2) +
          end.comment;
  return file;
}

// ---- pickle, opcode by opcode ----

inline std::string p_text(std::string_view text) {
  return "X" + le(text.size(), 4) + std::string(text);
}
inline std::string p_global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string p_int(std::int64_t value) {
  return "\x8a" + le(8, 1) + le(static_cast<std::uint64_t>(value), 8);
}
inline std::string p_tuple(const std::vector<std::string>& items) {
  std::string text = "(";
  for (const std::string& item : items) text += item;
  return text + "t";
}
inline std::string p_ints(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(p_int(value));
  return p_tuple(items);
}
inline std::string p_dict(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string text = "}(";
  for (const auto& [key, value] : pairs) text += p_text(key) + value;
  return text + "u";
}
/// NEWOBJ and BUILD.
inline std::string p_object(const std::string& cls, const std::string& state) {
  return cls + ")\x81" + state + "b";
}
inline std::string p_call(const std::string& callable, const std::string& arguments) {
  return callable + arguments + "R";
}
inline std::string p_ordered_dict() { return p_call(p_global("collections", "OrderedDict"), ")"); }
/// A whole pickle of protocol 2.
inline std::string p_whole(const std::string& body) { return "\x80\x02" + body + "."; }

/// A plain tensor. Any field can be falsified.
struct TensorText {
  std::string storage_class = "FloatStorage";
  std::string key = "0";
  std::int64_t numel = 6;
  std::int64_t offset = 0;
  std::vector<std::int64_t> size = {2, 3};
  std::vector<std::int64_t> stride = {3, 1};

  std::string text() const {
    const std::string storage = p_tuple({p_text("storage"), p_global("torch", storage_class),
                                         p_text(key), p_text("cpu"), p_int(numel)}) +
                                "Q";
    return p_call(
        p_global("torch._utils", "_rebuild_tensor_v2"),
        p_tuple({storage, p_int(offset), p_ints(size), p_ints(stride), "\x89", p_ordered_dict()}));
  }
};

inline const std::string kPlacements = "torch.distributed.tensor.placement_types";
inline const std::string kSpecModule = "torch.distributed.tensor._dtensor_spec";

inline std::string p_shard(std::int64_t dim) {
  return p_object(p_global(kPlacements, "Shard"), p_dict({{"dim", p_int(dim)}}));
}
inline std::string p_replicate() { return p_global(kPlacements, "Replicate") + ")\x81"; }

/// A dimension of a mesh in the form of torch 2.13 and later.
inline std::string p_axis(const std::string& shape, const std::string& stride) {
  return p_object(p_global("torch.distributed._mesh_layout", "_FlatLayout"),
                  p_dict({{"shape", shape}, {"stride", stride}}));
}

/// A DTensor of torch 2.4 to 2.9's form: the mesh is a tensor of ranks in storage "mesh"; with
/// `axes` of that of 2.13 on, which has the same ranks in a flat tensor.
struct DTensorText {
  TensorText local;
  std::vector<std::int64_t> size = {4, 3};
  std::vector<std::string> placements = {p_shard(0)};
  std::vector<std::int64_t> mesh_shape = {2};
  std::vector<std::int64_t> coordinate = {0};
  std::string dtype = "float32";
  std::string meta_dtype = "float32";
  std::vector<std::string> axes = {};
  /// With both of them the mesh has the form of torch 2.10 to 2.12.
  std::vector<std::string> shape_and_stride = {};
  /// More of the spec's fields.
  std::vector<std::pair<std::string, std::string>> spec_fields = {};

  std::string text() const {
    const bool by_layout = !axes.empty() || !shape_and_stride.empty();
    std::int64_t ranks = 1;
    std::vector<std::int64_t> strides(mesh_shape.size(), 1);
    for (std::size_t d = mesh_shape.size(); d-- > 0;) {
      strides[d] = ranks;
      ranks *= mesh_shape[d];
    }
    const std::string mesh_tensor =
        TensorText{.storage_class = "IntStorage",
                   .key = "mesh",
                   .numel = ranks,
                   .size = by_layout ? std::vector{ranks} : mesh_shape,
                   .stride = by_layout ? std::vector<std::int64_t>{1} : strides}
            .text();
    const std::string layout =
        p_object(p_global("torch.distributed._mesh_layout", "_MeshLayout"),
                 shape_and_stride.empty()
                     ? p_dict({{"axes", p_tuple(axes)}})
                     : p_dict({{"shape", shape_and_stride[0]}, {"stride", shape_and_stride[1]}}));
    const std::string own = p_ints(coordinate);
    const std::string mesh = p_object(
        p_global("torch.distributed.device_mesh", "DeviceMesh"),
        by_layout
            ? p_dict({{"_layout", layout}, {"_rank_map", mesh_tensor}, {"_coordinate_on_dim", own}})
            : p_dict({{"mesh", mesh_tensor}, {"_coordinate_on_dim", own}}));
    const std::string meta = p_global(kSpecModule, "TensorMeta") +
                             p_tuple({p_call(p_global("torch", "Size"), p_tuple({p_ints(size)})),
                                      p_ints({}), p_global("torch", meta_dtype)}) +
                             "\x81";
    std::vector<std::pair<std::string, std::string>> fields = {
        {"mesh", mesh}, {"placements", p_tuple(placements)}, {"tensor_meta", meta}};
    fields.insert(fields.end(), spec_fields.begin(), spec_fields.end());
    const std::string spec = p_object(p_global(kSpecModule, "DTensorSpec"), p_dict(fields));
    const std::string dtensor = p_global("torch.distributed.tensor", "DTensor");
    const std::string wrapper = p_tuple(
        {dtensor, p_global("torch", dtype), p_ints(size), p_ints({}), p_int(0), "N", "N", "\x89"});
    const std::string state =
        p_tuple({"N", p_dict({{"_local_tensor", local.text()}, {"_spec", spec}})});
    return p_call(
        p_global("torch._tensor", "_rebuild_from_type_v2"),
        p_tuple({p_global("torch._utils", "_rebuild_wrapper_subclass"), dtensor, wrapper, state}));
  }
};

/// A torch.save file of a pickle and storages.
inline std::vector<ZipPart> torch_parts(
    const std::string& pickle, const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<ZipPart> parts = {{.name = "archive/data.pkl", .data = pickle},
                                {.name = "archive/byteorder", .data = "little"}};
  for (const auto& [key, bytes] : storages) {
    parts.push_back({.name = "archive/data/" + key, .data = bytes});
  }
  parts.push_back({.name = "archive/version", .data = "3\n"});
  return parts;
}

}  // namespace evalcar::checkpoint::testing
