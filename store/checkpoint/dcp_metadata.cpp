#include "store/checkpoint/dcp_metadata.h"

#include <algorithm>
#include <compare>
#include <tuple>
#include <utility>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {

namespace {

// What a file of so many bytes can name; real ones are far from it. An entry takes some ninety
// bytes at least, a chunk's or an item's line some forty-five, a dimension eight.
constexpr std::size_t kAllowance = 1000;
std::size_t max_entries(std::size_t bytes) { return kAllowance + bytes / 64; }
std::size_t max_chunks(std::size_t bytes) { return kAllowance + bytes / 32; }
std::size_t max_items(std::size_t bytes) { return kAllowance + bytes / 40; }
std::size_t max_dimensions(std::size_t bytes) { return 64 * kAllowance + bytes / 8; }
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

/// What one metadata file says, until its chunks and items are matched. Sizes stay in the pickle.
struct DcpMetadataReader::Source {
  static constexpr Pickle::NodeId kNoOffset = UINT32_MAX;  // an item's: that of a scalar

  struct Item {
    std::uint32_t entry = 0;
    Pickle::NodeId start = kNoOffset;
    Pickle::NodeId name = 0;
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
  };
  struct NewChunk {
    std::uint32_t entry = 0;
    Pickle::NodeId start = 0;
    Pickle::NodeId size = 0;
  };

  std::string where;
  std::uint32_t number;  // from 1
  std::size_t bytes;
  Pickle pickle;
  std::vector<std::pair<std::uint32_t, Pickle::NodeId>> tensors = {};  // entry, object
  std::size_t dimensions = 0;
  std::deque<NewChunk> chunks = {};
  std::deque<Item> items = {};

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
  std::optional<std::uint64_t> number_in(Pickle::NodeId object, std::string_view name) const {
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
  /// The field if it holds sizes.
  std::optional<Pickle::NodeId> sizes_node(Pickle::NodeId object, std::string_view name) const {
    const auto found = field(object, name);
    return found && read_sizes(pickle, *found, kMaxDimensions) ? found : std::nullopt;
  }
  std::vector<std::int64_t> sizes_of(Pickle::NodeId node) const {
    if (node == kNoOffset) return {};
    return read_sizes(pickle, node, kMaxDimensions).value_or(std::vector<std::int64_t>());
  }
  /// The numbers of a node of sizes, as nodes.
  std::span<const Pickle::NodeId> numbers(Pickle::NodeId node) const {
    if (node == kNoOffset) return {};
    return pickle.items(pickle.is_object(node, PickleGlobal::kSize) ? pickle.arguments(node)[0]
                                                                    : node);
  }
  /// Below, equal to or above 0: how the sizes of two nodes follow each other.
  std::strong_ordering compare(Pickle::NodeId a, Pickle::NodeId b) const {
    const auto left = numbers(a);
    const auto right = numbers(b);
    for (std::size_t d = 0; d < std::min(left.size(), right.size()); ++d) {
      const auto order = pickle.integer(left[d]) <=> pickle.integer(right[d]);
      if (order != 0) return order;
    }
    return left.size() <=> right.size();
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
  const std::size_t size = bytes.size();
  EVALCAR_ASSIGN_OR_RETURN(Pickle pickle,
                           Pickle::parse(std::move(bytes), where, PickleNames::kDcpMetadata));
  sources_.push_back(where);
  Source source{where, static_cast<std::uint32_t>(sources_.size()), size, std::move(pickle)};
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

std::string DcpMetadataReader::where_of(const Entry& entry) const {
  return sources_[entry.first_source - 1] + ": " + quote_name(entry.key) + " at byte " +
         std::to_string(entry.key_offset);
}

DcpPath DcpMetadataReader::path_of(const Entry& entry) const {
  DcpPath path;
  const std::string_view key = entry.key;
  std::size_t begin = 0;
  for (const std::uint32_t cut : entry.cuts) {
    path.push_back(key.substr(begin, cut - 1 - begin));
    begin = cut;
  }
  path.push_back(key.substr(begin));
  return path;
}

Status DcpMetadataReader::add_entries(Source& source) {
  const Pickle& pickle = source.pickle;
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, source.root_dict("state_dict_metadata"));
  if (pairs.size() / 2 > max_entries(source.bytes)) {
    return source.corrupt("has more entries than a file of that size can name");
  }
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle.kind(pairs[i]) != PickleKind::kText) {
      return source.corrupt("state_dict_metadata has a key that is not text");
    }
    const std::string_view key = pickle.text(pairs[i]);
    const auto known = by_key_.find(key);
    const bool fresh = known == by_key_.end();
    const std::uint32_t index = fresh ? static_cast<std::uint32_t>(entries_.size()) : known->second;
    if (!fresh && entries_[index].last_source == source.number) {
      return source.corrupt(pairs[i], "is in state_dict_metadata twice");
    }
    const bool is_tensor = pickle.is_object(pairs[i + 1], PickleGlobal::kDcpTensor);
    if (!is_tensor && !pickle.is_object(pairs[i + 1], PickleGlobal::kDcpBytes)) {
      return source.corrupt(pairs[i], "is neither a tensor nor bytes");
    }
    if (fresh) {
      entries_.push_back({.key = std::string(key),
                          .cuts = {},
                          .shape = {},
                          .is_tensor = is_tensor,
                          .first_source = source.number,
                          .key_offset = static_cast<std::uint32_t>(pickle.text_offset(pairs[i]))});
      by_key_.emplace(entries_.back().key, index);
    } else if (entries_[index].is_tensor != is_tensor) {
      return source.corrupt(pairs[i], "is a tensor of one rank and bytes of another");
    }
    entries_[index].last_source = source.number;
    if (!is_tensor) continue;
    if (Status added = add_tensor(source, pairs[i + 1], entries_[index]); !added.has_value()) {
      return with_context(added.error(), source.at(pairs[i]));
    }
    source.tensors.emplace_back(index, pairs[i + 1]);
    source.dimensions += entries_[index].shape.size();
  }
  if (source.dimensions <= max_dimensions(source.bytes)) return {};
  return source.corrupt("has more dimensions than a file of that size can name");
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
void DcpMetadataReader::choose(const Source& source) {
  std::vector<DcpPath> paths;
  paths.reserve(source.tensors.size());
  for (const auto& [index, value] : source.tensors) paths.push_back(path_of(entries_[index]));
  const auto names = dcp_weight_names(paths);
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries_[source.tensors[i].first].is_wanted = names[i].has_value();
  }
}

Status DcpMetadataReader::add_chunks(Source& source) {
  const Pickle& pickle = source.pickle;
  for (const auto& [index, value] : source.tensors) {
    const Entry& entry = entries_[index];
    if (!entry.is_wanted) continue;
    const auto bad = [&](const std::string& why) {
      return make_error(ErrorCode::kCorruption, where_of(entry) + ": " + why);
    };
    const auto chunks = source.field(value, "chunks");
    if (!chunks || pickle.kind(*chunks) != PickleKind::kList) return bad("has no list of chunks");
    const auto items = pickle.items(*chunks);
    source.dimensions += items.size() * entry.shape.size();
    if (items.size() + source.chunks.size() > max_chunks(source.bytes) ||
        source.dimensions > max_dimensions(source.bytes)) {
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

Status DcpMetadataReader::add_paths(const Source& source) {
  const Pickle& pickle = source.pickle;
  const auto paths = source.field(pickle.root(), "planner_data");
  // A planner of the user's own may keep there what it likes.
  if (!paths || pickle.kind(*paths) != PickleKind::kDict) return {};
  const auto pairs = pickle.items(*paths);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle.kind(pairs[i]) != PickleKind::kText) continue;
    const auto known = by_key_.find(pickle.text(pairs[i]));
    if (known == by_key_.end()) continue;
    Entry& entry = entries_[known->second];
    if (entry.last_source != source.number) continue;
    if (entry.path_source == source.number) {
      return source.corrupt(pairs[i], "is in planner_data twice");
    }
    const bool told = std::exchange(entry.path_source, source.number) != 0;
    std::vector<std::uint32_t> cuts;
    std::string joined;
    bool first = true;
    for (const Pickle::NodeId part : pickle.items(pairs[i + 1])) {
      const bool is_index = pickle.kind(part) == PickleKind::kInteger;
      if (!is_index && pickle.kind(part) != PickleKind::kText) {
        return source.corrupt(pairs[i], "has a path of something else than names and numbers");
      }
      if (!std::exchange(first, false)) {
        joined += '.';
        cuts.push_back(static_cast<std::uint32_t>(joined.size()));
      }
      joined += is_index ? std::to_string(pickle.integer(part)) : std::string(pickle.text(part));
      if (joined.size() > entry.key.size()) break;  // parts may be one text over and over
    }
    if (first || joined != entry.key) {
      return source.corrupt(pairs[i], "has the path " + quote_name(joined) + " in planner_data");
    }
    if (told && entry.cuts != cuts) {
      return source.corrupt(pairs[i], "has different paths in the metadata of two ranks");
    }
    entry.cuts = std::move(cuts);
  }
  return {};
}

Result<std::uint32_t> DcpMetadataReader::file_index(const Source& source, Pickle::NodeId name) {
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

Status DcpMetadataReader::add_items(Source& source) {
  const Pickle& pickle = source.pickle;
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, source.root_dict("storage_data"));
  if (pairs.size() / 2 > max_items(source.bytes)) {
    return source.corrupt("has more items in storage_data than a file of that size can name");
  }
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto name = pickle.is_object(pairs[i], PickleGlobal::kDcpIndex)
                          ? source.field(pairs[i], "fqn")
                          : std::nullopt;
    if (!name || pickle.kind(*name) != PickleKind::kText) {
      return source.corrupt("storage_data has a key without an fqn");
    }
    const auto known_key = by_key_.find(pickle.text(*name));
    if (known_key == by_key_.end() || entries_[known_key->second].last_source != source.number) {
      return source.corrupt(*name, "is in storage_data, but not in state_dict_metadata");
    }
    const auto start = source.field(pairs[i], "offset").value_or(Source::kNoOffset);
    const bool has_start =
        start == Source::kNoOffset || read_sizes(pickle, start, kMaxDimensions).has_value();
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
    const std::uint32_t index = known_key->second;
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
Status DcpMetadataReader::match(Source& source) {
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
  const Source::Item& lost = source.items[static_cast<std::size_t>(unused - used.begin())];
  return source.corrupt(lost.name, "has a range for a chunk at " +
                                       shape_text(source.sizes_of(lost.start)) +
                                       ", but no such chunk");
}

/// Finds the item of a chunk, from `item` on.
Status DcpMetadataReader::match_one(const Source& source, std::size_t chunk, std::size_t& item,
                                    std::vector<bool>& used) {
  const Source::NewChunk& wanted = source.chunks[chunk];
  const Entry& entry = entries_[wanted.entry];
  const auto start = source.sizes_of(wanted.start);
  const auto size = source.sizes_of(wanted.size);
  const auto bad = [&](const std::string& why) {
    return make_error(ErrorCode::kCorruption, where_of(entry) + ": " + why);
  };
  if (!lies_inside(entry.shape, start, size)) {
    return bad("the chunk of shape " + shape_text(size) + " at " + shape_text(start) +
               " lies outside of its shape " + shape_text(entry.shape));
  }
  const auto order_of = [&](const Source::Item& candidate) {
    return candidate.entry != wanted.entry ? candidate.entry <=> wanted.entry
                                           : source.compare(candidate.start, wanted.start);
  };
  while (item < source.items.size() && order_of(source.items[item]) < 0) ++item;
  const bool found = item < source.items.size() && order_of(source.items[item]) == 0;
  if (found) used[item] = true;
  if (checked_elements(size) == 0U) return {};
  if (!found) return bad("the chunk at " + shape_text(start) + " has no range in storage_data");
  const Source::Item& its = source.items[item];
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
  const Entry& entry = entries_[index];
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
    return with_context(tiled.error(), where_of(entry));
  }
  tensor.pieces.shrink_to_fit();
  return tensor;
}

Result<DcpMetadata> DcpMetadataReader::finish() {
  if (sources_.empty()) return make_error(ErrorCode::kInvalidArgument, "no metadata");
  EVALCAR_RETURN_IF_ERROR(check_files(sources_.back()));
  std::vector<std::uint32_t> tensors;
  std::vector<DcpPath> paths;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].is_tensor) continue;
    tensors.push_back(i);
    paths.push_back(path_of(entries_[i]));
  }
  auto names = dcp_weight_names(paths);
  paths = {};
  std::map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!names[i] || is_extra_state(*names[i])) {
      names[i].reset();
    } else if (!seen.emplace(*names[i], i).second) {
      return make_error(
          ErrorCode::kCorruption,
          where_of(entries_[tensors[i]]) + ": two tensors are named " + quote_name(*names[i]));
    } else if (const auto transform = transforms_.find(tensors[i]);
               transform != transforms_.end()) {
      return make_error(ErrorCode::kUnsupported,
                        where_of(entries_[tensors[i]]) + ": is written through the transform " +
                            transform->second + ", which is not read; save without _extensions");
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
  DcpMetadata metadata;
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
