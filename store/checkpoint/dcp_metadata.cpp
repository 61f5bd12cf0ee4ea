#include "store/checkpoint/dcp_metadata.h"

#include <algorithm>
#include <set>
#include <utility>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {

/// What one metadata file says, until its chunks and items are matched.
struct DcpMetadataReader::Source {
  struct Item {
    std::size_t file = 0;
    DcpItem item;
    std::string transform;
    bool used = false;
    Pickle::NodeId name = 0;
  };
  struct NewChunk {
    std::size_t entry = 0;
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> size;
  };

  std::string where;
  std::size_t max_chunks;  // by the file's size: each takes some sixty bytes, and its range more
  Pickle pickle;
  std::map<std::string_view, std::size_t> entries;              // key → index into entries_
  std::vector<std::pair<std::size_t, Pickle::NodeId>> tensors;  // index into entries_, object
  std::set<std::size_t> weights;                                // of them, the model's
  std::vector<NewChunk> chunks;
  std::map<std::pair<std::size_t, std::vector<std::int64_t>>, Item> items;  // by entry and start

  std::string at(Pickle::NodeId text) const {
    return where + ": " + quote_name(pickle.text(text)) + " at byte " +
           std::to_string(pickle.text_offset(text));
  }
  Error corrupt(Pickle::NodeId text, const std::string& why) const {
    return make_error(ErrorCode::kCorruption, at(text) + ": " + why);
  }
  Error corrupt(const std::string& why) const {
    return make_error(ErrorCode::kCorruption, where + ": " + why);
  }
  /// A field of a dataclass; absent where it is None, too.
  std::optional<Pickle::NodeId> field(Pickle::NodeId object, std::string_view name) const {
    const auto state = pickle.state(object);
    const auto found = state ? pickle.find(*state, name) : std::nullopt;
    return found && pickle.kind(*found) != PickleKind::kNone ? found : std::nullopt;
  }
  std::optional<std::uint64_t> number(Pickle::NodeId object, std::string_view name) const {
    const auto found = field(object, name);
    if (!found || pickle.kind(*found) != PickleKind::kInteger || pickle.integer(*found) < 0) {
      return std::nullopt;
    }
    return static_cast<std::uint64_t>(pickle.integer(*found));
  }
  std::optional<std::vector<std::int64_t>> sizes(Pickle::NodeId object,
                                                 std::string_view name) const {
    const auto found = field(object, name);
    return found ? read_sizes(pickle, *found, kMaxDimensions) : std::nullopt;
  }
  /// Key and value of each pair of a dict; the dict of the field of the root.
  Result<std::span<const Pickle::NodeId>> root_dict(std::string_view name) const {
    const auto dict = field(pickle.root(), name);
    if (!dict || pickle.kind(*dict) != PickleKind::kDict) {
      return corrupt("has no " + std::string(name));
    }
    return pickle.items(*dict);
  }
};

Status DcpMetadataReader::add(std::string bytes, const std::string& where) {
  const std::size_t max_chunks = 1000 + bytes.size() / 32;
  EVALCAR_ASSIGN_OR_RETURN(Pickle pickle,
                           Pickle::parse(std::move(bytes), where, PickleNames::kDcpMetadata));
  Source source{where, max_chunks, std::move(pickle), {}, {}, {}, {}, {}};
  where_ = where;
  if (!source.pickle.is_object(source.pickle.root(), PickleGlobal::kDcpMetadata)) {
    return source.corrupt("is not the metadata of a torch.distributed.checkpoint");
  }
  EVALCAR_RETURN_IF_ERROR(add_entries(source));
  EVALCAR_RETURN_IF_ERROR(add_paths(source));
  choose(source);
  EVALCAR_RETURN_IF_ERROR(add_chunks(source));
  EVALCAR_RETURN_IF_ERROR(add_items(source));
  return match(source);
}

Status DcpMetadataReader::add_entries(Source& source) {
  const Pickle& pickle = source.pickle;
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, source.root_dict("state_dict_metadata"));
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle.kind(pairs[i]) != PickleKind::kText) {
      return source.corrupt("state_dict_metadata has a key that is not text");
    }
    const std::string_view key = pickle.text(pairs[i]);
    const auto [place, fresh] = by_key_.try_emplace(std::string(key), entries_.size());
    if (!source.entries.emplace(key, place->second).second) {
      return source.corrupt(pairs[i], "is in state_dict_metadata twice");
    }
    const bool is_tensor = pickle.is_object(pairs[i + 1], PickleGlobal::kDcpTensor);
    if (!is_tensor && !pickle.is_object(pairs[i + 1], PickleGlobal::kDcpBytes)) {
      return source.corrupt(pairs[i], "is neither a tensor nor bytes");
    }
    if (fresh) {
      entries_.push_back({.key = std::string(key),
                          .path = {},
                          .is_tensor = is_tensor,
                          .shape = {},
                          .chunks = {},
                          .where = source.at(pairs[i])});
    } else if (entries_[place->second].is_tensor != is_tensor) {
      return source.corrupt(pairs[i], "is a tensor of one rank and bytes of another");
    }
    if (!is_tensor) continue;
    if (Status added = add_tensor(source, pairs[i + 1], entries_[place->second]);
        !added.has_value()) {
      return with_context(added.error(), source.at(pairs[i]));
    }
    source.tensors.emplace_back(place->second, pairs[i + 1]);
  }
  return {};
}

Status DcpMetadataReader::add_tensor(const Source& source, Pickle::NodeId value, Entry& entry) {
  const Pickle& pickle = source.pickle;
  const auto bad = [](const std::string& why) { return make_error(ErrorCode::kCorruption, why); };
  const auto properties = source.field(value, "properties");
  const auto state = properties && pickle.is_object(*properties, PickleGlobal::kDcpProperties)
                         ? pickle.state(*properties)
                         : std::nullopt;
  // (dtype, layout, requires_grad, memory format, pin_memory)
  if (!state || pickle.items(*state).size() != 5 ||
      !pickle.is_global(pickle.items(*state)[0], PickleGlobal::kDType)) {
    return bad("has no dtype");
  }
  const Pickle::NodeId layout = pickle.items(*state)[1];
  if (!pickle.is_object(layout, PickleGlobal::kGetLayout) || pickle.arguments(layout).size() != 1) {
    return bad("has no layout");
  }
  if (const auto name = pickle.text(pickle.arguments(layout)[0]); name != "torch.strided") {
    return make_error(ErrorCode::kUnsupported,
                      "is a tensor of layout " + quote_name(name) + ", expected torch.strided");
  }
  const auto shape = source.sizes(value, "size");
  if (!shape || !checked_elements(*shape)) return bad("has a malformed size");
  const DType dtype = pickle.dtype(pickle.items(*state)[0]);
  if (!std::exchange(entry.is_described, true)) {
    entry.dtype = dtype;
    entry.shape = *shape;
  } else if (entry.dtype != dtype || entry.shape != *shape) {
    return bad("differs in dtype or shape from another rank's: metadata of two saves?");
  }
  return {};
}

/// Only the model's own entries need their chunks: an optimizer has twice as many.
void DcpMetadataReader::choose(Source& source) const {
  std::vector<DcpPath> paths;
  std::vector<std::size_t> tensors;
  for (const auto& [index, value] : source.tensors) {
    const Entry& entry = entries_[index];
    paths.push_back(entry.path.empty() ? DcpPath{entry.key} : entry.path);
    tensors.push_back(index);
  }
  const auto names = dcp_weight_names(paths);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (names[i]) source.weights.insert(tensors[i]);
  }
}

Status DcpMetadataReader::add_chunks(Source& source) {
  const Pickle& pickle = source.pickle;
  for (const auto& [index, value] : source.tensors) {
    if (!source.weights.contains(index)) continue;
    const auto bad = [&, where = entries_[index].where](const std::string& why) {
      return make_error(ErrorCode::kCorruption, where + ": " + why);
    };
    const auto chunks = source.field(value, "chunks");
    if (!chunks || pickle.kind(*chunks) != PickleKind::kList) return bad("has no list of chunks");
    if (pickle.items(*chunks).size() + source.chunks.size() > source.max_chunks) {
      return bad("has more chunks than a file of that size can name");
    }
    for (const Pickle::NodeId chunk : pickle.items(*chunks)) {
      const bool known = pickle.is_object(chunk, PickleGlobal::kDcpChunk);
      const auto start = known ? source.sizes(chunk, "offsets") : std::nullopt;
      const auto size = known ? source.sizes(chunk, "sizes") : std::nullopt;
      if (!start || !size) return bad("has a malformed chunk");
      source.chunks.push_back({index, *start, *size});
    }
  }
  return {};
}

Status DcpMetadataReader::add_paths(const Source& source) {
  const Pickle& pickle = source.pickle;
  const auto paths = source.field(pickle.root(), "planner_data");
  // A planner of the user's own may keep there what it likes.
  if (!paths || pickle.kind(*paths) != PickleKind::kDict) return {};
  const auto pairs = pickle.items(*paths);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto entry = source.entries.find(pickle.text(pairs[i]));
    if (pickle.kind(pairs[i]) != PickleKind::kText || entry == source.entries.end()) continue;
    DcpPath path;
    std::string joined;
    for (const Pickle::NodeId part : pickle.items(pairs[i + 1])) {
      const bool is_index = pickle.kind(part) == PickleKind::kInteger;
      if (!is_index && pickle.kind(part) != PickleKind::kText) {
        return source.corrupt(pairs[i], "has a path of something else than names and numbers");
      }
      path.push_back(is_index ? std::to_string(pickle.integer(part))
                              : std::string(pickle.text(part)));
      joined += (path.size() > 1 ? "." : "") + path.back();
    }
    if (path.empty() || joined != pickle.text(pairs[i])) {
      return source.corrupt(pairs[i], "has the path " + quote_name(joined) + " in planner_data");
    }
    Entry& known = entries_[entry->second];
    if (!known.path.empty() && known.path != path) {
      return source.corrupt(pairs[i], "has different paths in the metadata of two ranks");
    }
    known.path = std::move(path);
  }
  return {};
}

Result<std::size_t> DcpMetadataReader::file_index(const Source& source, Pickle::NodeId name) {
  const std::string_view text = source.pickle.text(name);
  if (const auto known = by_file_.find(text); known != by_file_.end()) return known->second;
  if (!is_plain_name(text)) {
    return source.corrupt(name, "as a relative_path, expected a plain name in the same folder");
  }
  by_file_.emplace(text, files_.size());
  files_.push_back({std::string(text), {}, false});
  return files_.size() - 1;
}

Status DcpMetadataReader::add_items(Source& source) {
  const Pickle& pickle = source.pickle;
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, source.root_dict("storage_data"));
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto name = pickle.is_object(pairs[i], PickleGlobal::kDcpIndex)
                          ? source.field(pairs[i], "fqn")
                          : std::nullopt;
    if (!name || pickle.kind(*name) != PickleKind::kText) {
      return source.corrupt("storage_data has a key without an fqn");
    }
    const auto entry = source.entries.find(pickle.text(*name));
    if (entry == source.entries.end()) {
      return source.corrupt(*name, "is in storage_data, but not in state_dict_metadata");
    }
    const auto offset = source.field(pairs[i], "offset");
    const auto start = offset ? read_sizes(pickle, *offset, kMaxDimensions)
                              : std::optional(std::vector<std::int64_t>());
    const Pickle::NodeId info = pairs[i + 1];
    const bool known = pickle.is_object(info, PickleGlobal::kDcpStorageInfo);
    const auto path = known ? source.field(info, "relative_path") : std::nullopt;
    const auto place = known ? source.number(info, "offset") : std::nullopt;
    const auto length = known ? source.number(info, "length") : std::nullopt;
    if (!start || !path || pickle.kind(*path) != PickleKind::kText || !place || !length) {
      return source.corrupt(*name, "has a malformed entry in storage_data");
    }
    const auto end = checked_add(*place, *length);
    if (!end || *end > static_cast<std::uint64_t>(INT64_MAX)) {
      return source.corrupt(*name, "has a range of " + std::to_string(*length) + " bytes at " +
                                       std::to_string(*place) + ", which overflows");
    }
    Source::Item item{.item = {*place, *length}, .name = *name};
    EVALCAR_ASSIGN_OR_RETURN(item.file, file_index(source, *path));
    if (const auto transforms = source.field(info, "transform_descriptors")) {
      for (const Pickle::NodeId transform : pickle.items(*transforms)) {
        item.transform += (item.transform.empty() ? "" : ", ") + quote_name(pickle.text(transform));
      }
    }
    files_[item.file].items.push_back(item.item);
    if (!source.weights.contains(entry->second)) continue;
    if (!source.items.emplace(std::pair(entry->second, *start), std::move(item)).second) {
      return source.corrupt(*name, "has two ranges for its chunk at " + shape_text(*start));
    }
  }
  return {};
}

/// A chunk and its item have the same entry and offset; the index that an item has, too, is a hint.
Status DcpMetadataReader::match(Source& source) {
  for (Source::NewChunk& chunk : source.chunks) {
    Entry& entry = entries_[chunk.entry];
    Chunk matched{std::move(chunk.start), std::move(chunk.size), 0, {}, {}};
    const auto found = source.items.find({chunk.entry, matched.start});
    if (found != source.items.end()) {
      found->second.used = true;
      matched.file = found->second.file;
      matched.item = found->second.item;
      matched.transform = found->second.transform;
    } else if (checked_elements(matched.size) != 0U) {
      return make_error(ErrorCode::kCorruption, entry.where + ": the chunk at " +
                                                    shape_text(matched.start) +
                                                    " has no range in storage_data");
    }
    entry.chunks.push_back(std::move(matched));
  }
  for (const auto& [place, item] : source.items) {
    if (item.used || !entries_[place.first].is_tensor) continue;
    return source.corrupt(item.name, "has a range for a chunk at " + shape_text(place.second) +
                                         ", but no such chunk");
  }
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

Result<DcpMetadata> DcpMetadataReader::finish() {
  EVALCAR_RETURN_IF_ERROR(check_files(where_));
  std::vector<std::size_t> tensors;
  std::vector<DcpPath> paths;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].is_tensor) continue;
    tensors.push_back(i);
    paths.push_back(entries_[i].path.empty() ? DcpPath{entries_[i].key} : entries_[i].path);
  }
  DcpMetadata metadata;
  std::set<std::string> seen;
  const auto names = dcp_weight_names(paths);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!names[i] || is_extra_state(*names[i])) continue;
    Entry& entry = entries_[tensors[i]];
    if (!seen.insert(*names[i]).second) {
      return make_error(ErrorCode::kCorruption,
                        entry.where + ": two tensors are named " + quote_name(*names[i]));
    }
    TensorPlan tensor;
    tensor.name = *names[i];
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    for (Chunk& chunk : entry.chunks) {
      if (!chunk.transform.empty()) {
        return make_error(ErrorCode::kUnsupported,
                          entry.where + ": is written through the transform " + chunk.transform +
                              ", which is not read; save without _extensions");
      }
      tensor.pieces.push_back(
          {chunk.file, chunk.item.offset, std::move(chunk.start), std::move(chunk.size), {}});
    }
    if (Status tiled = check_tiling(tensor); !tiled.has_value()) {
      return with_context(tiled.error(), entry.where);
    }
    for (const Piece& piece : tensor.pieces) files_[piece.file].has_weights = true;
    metadata.weights.push_back(std::move(tensor));
  }
  if (metadata.weights.empty()) {
    return make_error(ErrorCode::kCorruption, where_ + ": holds no tensor of a model");
  }
  metadata.files = std::move(files_);
  return metadata;
}

}  // namespace evalcar::checkpoint
