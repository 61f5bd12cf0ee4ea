#include "store/checkpoint/dcp_entries.h"

#include <utility>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {

Status DcpEntries::add(DcpSource& source) {
  sources_.resize(source.number);
  sources_.back() = source.where;
  EVALCAR_RETURN_IF_ERROR(add_entries(source));
  EVALCAR_RETURN_IF_ERROR(add_paths(source));
  choose(source);
  return {};
}

std::optional<std::uint32_t> DcpEntries::find(std::string_view key) const {
  const auto known = by_key_.find(key);
  return known == by_key_.end() ? std::nullopt : std::optional(known->second);
}

std::string DcpEntries::where_of(const DcpEntry& entry) const {
  return sources_[entry.first_source - 1] + ": " + quote_name(entry.key) + " at byte " +
         std::to_string(entry.key_offset);
}

DcpPath DcpEntries::path_of(const DcpEntry& entry) const {
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

Status DcpEntries::add_entries(DcpSource& source) {
  const Pickle& pickle = source.pickle;
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, source.root_dict("state_dict_metadata"));
  if (pairs.size() / 2 > source.max_entries()) {
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
  if (source.dimensions <= source.max_dimensions()) return {};
  return source.corrupt("has more dimensions than a file of that size can name");
}

Status DcpEntries::add_tensor(const DcpSource& source, Pickle::NodeId value, DcpEntry& entry) {
  const Pickle& pickle = source.pickle;
  const auto bad = [](const std::string& why) { return make_error(ErrorCode::kCorruption, why); };
  const auto properties = source.field(value, "properties");
  const auto state = properties && pickle.is_object(*properties, PickleGlobal::kDcpProperties)
                         ? pickle.state(*properties)
                         : std::nullopt;
  // (dtype, layout, requires_grad, memory format, pin_memory[, strides]): torch 2.15 tells the
  // tensor's strides, too; those of a chunk's elements are in its own file.
  const std::size_t fields = state ? pickle.items(*state).size() : 0;
  if ((fields != 5 && fields != 6) ||
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
void DcpEntries::choose(const DcpSource& source) {
  std::vector<DcpPath> paths;
  paths.reserve(source.tensors.size());
  for (const auto& [index, value] : source.tensors) paths.push_back(path_of(entries_[index]));
  const auto names = dcp_weight_names(paths).of;
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries_[source.tensors[i].first].is_wanted = names[i].has_value();
  }
}

Status DcpEntries::add_paths(const DcpSource& source) {
  const Pickle& pickle = source.pickle;
  const auto paths = source.field(pickle.root(), "planner_data");
  // A planner of the user's own may keep there what it likes.
  if (!paths || pickle.kind(*paths) != PickleKind::kDict) return {};
  const auto pairs = pickle.items(*paths);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle.kind(pairs[i]) != PickleKind::kText) continue;
    const auto known = by_key_.find(pickle.text(pairs[i]));
    if (known == by_key_.end()) continue;
    DcpEntry& entry = entries_[known->second];
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

}  // namespace evalcar::checkpoint
