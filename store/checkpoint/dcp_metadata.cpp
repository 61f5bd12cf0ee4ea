#include "store/checkpoint/dcp_metadata.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {

namespace {

/// Only one of a weight's is needed to refuse it.
constexpr std::size_t kMaxTransforms = 1000;

bool lies_inside(std::span<const std::int64_t> shape, std::span<const std::int64_t> start,
                 std::span<const std::int64_t> size) {
  if (start.size() != shape.size() || size.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (size[d] > shape[d] || start[d] > shape[d] - size[d]) return false;
  }
  return true;
}

}  // namespace

Status DcpMetadataReader::add(std::string bytes, const std::string& where) {
  const std::size_t size = bytes.size();
  EVALCAR_ASSIGN_OR_RETURN(Pickle pickle,
                           Pickle::parse(std::move(bytes), where, PickleNames::kDcpMetadata));
  sources_.push_back(where);
  DcpSource source{where, static_cast<std::uint32_t>(sources_.size()), size, std::move(pickle)};
  if (!source.pickle.is_object(source.pickle.root(), PickleGlobal::kDcpMetadata)) {
    return source.corrupt("is, at byte 0, not the metadata of a torch.distributed.checkpoint");
  }
  EVALCAR_RETURN_IF_ERROR(entries_.add(source));
  EVALCAR_RETURN_IF_ERROR(add_chunks(source));
  EVALCAR_RETURN_IF_ERROR(add_items(source));
  return match(source);
}

Status DcpMetadataReader::add_chunks(DcpSource& source) {
  const Pickle& pickle = source.pickle;
  for (const auto& [index, value] : source.tensors) {
    const DcpEntry& entry = entries_[index];
    if (!entry.is_wanted) continue;
    const auto bad = [&](const std::string& why) {
      return make_error(ErrorCode::kCorruption, entries_.where_of(entry) + ": " + why);
    };
    const auto chunks = source.field(value, "chunks");
    if (!chunks || pickle.kind(*chunks) != PickleKind::kList) return bad("has no list of chunks");
    const auto items = pickle.items(*chunks);
    source.dimensions += items.size() * entry.shape.size();
    if (items.size() + source.chunks.size() > source.max_chunks() ||
        source.dimensions > source.max_dimensions()) {
      return bad("has more chunks than a file of that size can name");
    }
    for (const Pickle::NodeId chunk : items) {
      const bool known = pickle.is_object(chunk, PickleGlobal::kDcpChunk);
      const auto start = known ? source.sizes_node(chunk, "offsets") : std::nullopt;
      const auto size = known ? source.sizes_node(chunk, "sizes") : std::nullopt;
      if (!start || !size) return bad("has a malformed chunk");
      source.chunks.push_back({index, *start, *size});
    }
  }
  return {};
}

Result<std::uint32_t> DcpMetadataReader::file_index(const DcpSource& source, Pickle::NodeId name) {
  const std::string_view text = source.pickle.text(name);
  if (const auto known = by_file_.find(text); known != by_file_.end()) return known->second;
  if (!is_plain_name(text)) {
    return source.corrupt(name, "as a relative_path, expected a plain name in the same folder");
  }
  const auto index = static_cast<std::uint32_t>(files_.size());
  by_file_.emplace(text, index);
  files_.push_back({std::string(text), {}, false});
  return index;
}

Status DcpMetadataReader::add_items(DcpSource& source) {
  const Pickle& pickle = source.pickle;
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, source.root_dict("storage_data"));
  if (pairs.size() / 2 > source.max_items()) {
    return source.corrupt("has more items in storage_data than a file of that size can name");
  }
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto name = pickle.is_object(pairs[i], PickleGlobal::kDcpIndex)
                          ? source.field(pairs[i], "fqn")
                          : std::nullopt;
    if (!name || pickle.kind(*name) != PickleKind::kText) {
      return source.corrupt("storage_data has a key without an fqn");
    }
    const auto known_key = entries_.find(pickle.text(*name));
    if (!known_key || entries_[*known_key].last_source != source.number) {
      return source.corrupt(*name, "is in storage_data, but not in state_dict_metadata");
    }
    const auto start = source.field(pairs[i], "offset").value_or(DcpSource::kNoOffset);
    const bool has_start =
        start == DcpSource::kNoOffset || read_sizes(pickle, start, kMaxDimensions).has_value();
    const Pickle::NodeId info = pairs[i + 1];
    const bool known = pickle.is_object(info, PickleGlobal::kDcpStorageInfo);
    const auto path = known ? source.field(info, "relative_path") : std::nullopt;
    const auto place = known ? source.number_in(info, "offset") : std::nullopt;
    const auto length = known ? source.number_in(info, "length") : std::nullopt;
    if (!has_start || !path || pickle.kind(*path) != PickleKind::kText || !place || !length) {
      return source.corrupt(*name, "has a malformed entry in storage_data");
    }
    const auto end = checked_add(*place, *length);
    if (!end || *end > static_cast<std::uint64_t>(INT64_MAX)) {
      return source.corrupt(*name, "has a range of " + std::to_string(*length) + " bytes at " +
                                       std::to_string(*place) + ", which overflows");
    }
    EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t file, file_index(source, *path));
    files_[file].items.push_back({*place, *length});
    const std::uint32_t index = *known_key;
    if (!entries_[index].is_wanted) continue;
    source.items.push_back({index, start, *name, file, *place});
    const auto transforms = source.field(info, "transform_descriptors");
    if (!transforms || pickle.items(*transforms).empty() || transforms_.contains(index) ||
        transforms_.size() >= kMaxTransforms) {
      continue;
    }
    std::string& text = transforms_[index];
    for (const Pickle::NodeId transform : pickle.items(*transforms)) {
      text += (text.empty() ? "" : ", ") + quote_name(pickle.text(transform));
      if (text.size() > 1000) break;
    }
  }
  return {};
}

/// A chunk and its item have the same entry and offset; the index that an item has, too, is a hint.
Status DcpMetadataReader::match(DcpSource& source) {
  const auto in_order = [&](const auto& a, const auto& b) {
    return a.entry != b.entry ? a.entry < b.entry : source.compare(a.start, b.start) < 0;
  };
  std::sort(source.chunks.begin(), source.chunks.end(), in_order);
  std::sort(source.items.begin(), source.items.end(), in_order);
  for (std::size_t i = 1; i < source.items.size(); ++i) {
    if (in_order(source.items[i - 1], source.items[i])) continue;
    return source.corrupt(
        source.items[i].name,
        "has two ranges for its chunk at " + shape_text(source.sizes_of(source.items[i].start)));
  }
  std::vector<bool> used(source.items.size());
  std::size_t item = 0;
  for (std::size_t chunk = 0; chunk < source.chunks.size(); ++chunk) {
    EVALCAR_RETURN_IF_ERROR(match_one(source, chunk, item, used));
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return {};
  const DcpSource::Item& lost = source.items[static_cast<std::size_t>(unused - used.begin())];
  return source.corrupt(lost.name, "has a range for a chunk at " +
                                       shape_text(source.sizes_of(lost.start)) +
                                       ", but no such chunk");
}

/// Finds the item of a chunk, from `item` on.
Status DcpMetadataReader::match_one(const DcpSource& source, std::size_t chunk, std::size_t& item,
                                    std::vector<bool>& used) {
  const DcpSource::Chunk& wanted = source.chunks[chunk];
  const DcpEntry& entry = entries_[wanted.entry];
  const auto start = source.sizes_of(wanted.start);
  const auto size = source.sizes_of(wanted.size);
  const auto bad = [&](const std::string& why) {
    return make_error(ErrorCode::kCorruption, entries_.where_of(entry) + ": " + why);
  };
  if (!lies_inside(entry.shape, start, size)) {
    return bad("the chunk of shape " + shape_text(size) + " at " + shape_text(start) +
               " lies outside of its shape " + shape_text(entry.shape));
  }
  const auto order_of = [&](const DcpSource::Item& candidate) {
    return candidate.entry != wanted.entry ? candidate.entry <=> wanted.entry
                                           : source.compare(candidate.start, wanted.start);
  };
  while (item < source.items.size() && order_of(source.items[item]) < 0) ++item;
  const bool found = item < source.items.size() && order_of(source.items[item]) == 0;
  if (found) used[item] = true;
  if (checked_elements(size) == 0U) return {};
  if (!found) return bad("the chunk at " + shape_text(start) + " has no range in storage_data");
  const DcpSource::Item& its = source.items[item];
  chunks_.push_back({wanted.entry, its.file, its.offset, dims_.size()});
  dims_.insert(dims_.end(), start.begin(), start.end());
  dims_.insert(dims_.end(), size.begin(), size.end());
  return {};
}

Status DcpMetadataReader::check_files(const std::string& where) {
  for (DcpFile& file : files_) {
    std::sort(file.items.begin(), file.items.end(), [](const DcpItem& a, const DcpItem& b) {
      return std::pair(a.offset, a.length) < std::pair(b.offset, b.length);
    });
    std::uint64_t position = 0;
    for (const DcpItem& item : file.items) {
      if (item.offset != position) {
        return make_error(ErrorCode::kCorruption, where + ": the items of " + file.name +
                                                      " do not follow each other: one " +
                                                      "begins at byte " +
                                                      std::to_string(item.offset) + ", expected " +
                                                      std::to_string(position));
      }
      position += item.length;
    }
  }
  return {};
}

/// The tensor of the last chunks that are left, which are removed.
Result<TensorPlan> DcpMetadataReader::take_tensor(std::size_t index, std::string name) {
  const DcpEntry& entry = entries_[index];
  TensorPlan tensor;
  tensor.name = std::move(name);
  tensor.dtype = entry.dtype;
  tensor.shape = entry.shape;
  const auto rank = static_cast<std::ptrdiff_t>(entry.shape.size());
  for (; !chunks_.empty() && chunks_.back().entry >= index; chunks_.pop_back()) {
    const Chunk& chunk = chunks_.back();
    if (chunk.entry > index) continue;  // of no weight, seen over all ranks
    const auto start = dims_.begin() + static_cast<std::ptrdiff_t>(chunk.dims);
    tensor.pieces.push_back(
        {chunk.file, chunk.offset, {start, start + rank}, {start + rank, start + 2 * rank}, {}});
  }
  std::reverse(tensor.pieces.begin(), tensor.pieces.end());
  if (Status tiled = check_tiling(tensor); !tiled.has_value()) {
    return with_context(tiled.error(), entries_.where_of(entry));
  }
  tensor.pieces.shrink_to_fit();
  return tensor;
}

Result<DcpMetadata> DcpMetadataReader::finish() {
  if (sources_.empty()) return make_error(ErrorCode::kInvalidArgument, "no metadata");
  EVALCAR_RETURN_IF_ERROR(check_files(sources_.back()));
  std::vector<std::uint32_t> tensors;
  std::vector<DcpPath> paths;
  DcpMetadata metadata;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].is_tensor && is_extra_state(entries_[i].key)) {
      metadata.extra_states.push_back(entries_[i].key);
    }
    if (!entries_[i].is_tensor) continue;
    tensors.push_back(i);
    paths.push_back(entries_.path_of(entries_[i]));
  }
  auto [names, left_out] = dcp_weight_names(paths);
  metadata.left_out = std::move(left_out);
  paths = {};
  std::map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!names[i]) {
      continue;
    } else if (is_extra_state(*names[i])) {
      metadata.extra_states.push_back(*std::exchange(names[i], std::nullopt));
    } else if (!seen.emplace(*names[i], i).second) {
      return make_error(ErrorCode::kCorruption, entries_.where_of(entries_[tensors[i]]) +
                                                    ": two tensors are named " +
                                                    quote_name(*names[i]));
    } else if (const auto transform = transforms_.find(tensors[i]);
               transform != transforms_.end()) {
      return make_error(ErrorCode::kUnsupported,
                        entries_.where_of(entries_[tensors[i]]) +
                            ": is written through the transform " + transform->second +
                            ", which is not read; save without _extensions");
    }
  }
  seen.clear();
  if (std::none_of(names.begin(), names.end(), [](const auto& name) { return name.has_value(); })) {
    return make_error(ErrorCode::kCorruption, sources_.back() + ": holds no tensor of a model");
  }
  std::sort(chunks_.begin(), chunks_.end(), [](const Chunk& a, const Chunk& b) {
    return std::tie(a.entry, a.file, a.offset) < std::tie(b.entry, b.file, b.offset);
  });
  // From the end, so that the chunks go while the pieces come.
  for (std::size_t i = tensors.size(); i-- > 0;) {
    if (!names[i]) continue;
    EVALCAR_ASSIGN_OR_RETURN(TensorPlan tensor, take_tensor(tensors[i], *std::move(names[i])));
    for (const Piece& piece : tensor.pieces) files_[piece.file].has_weights = true;
    metadata.weights.push_back(std::move(tensor));
  }
  std::reverse(metadata.weights.begin(), metadata.weights.end());
  metadata.files = std::move(files_);
  return metadata;
}

}  // namespace evalcar::checkpoint
