#include "store/checkpoint/pickle.h"

#include "store/checkpoint/pickle_machine.h"

namespace evalcar::checkpoint {

Result<Pickle> Pickle::parse(std::string bytes, std::string_view where, PickleNames names) {
  if (bytes.size() >= UINT32_MAX) {
    return make_error(ErrorCode::kCorruption, std::string(where) + ": pickle of 4 GiB or more");
  }
  return PickleMachine(std::move(bytes), where, names).run();
}

std::string_view Pickle::text(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind != PickleKind::kText) return {};
  return std::string_view(*bytes_).substr(node.first, node.count);
}

std::span<const Pickle::NodeId> Pickle::items(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind == PickleKind::kTuple) return std::span(pool_).subspan(node.first, node.count);
  const bool grows = node.kind == PickleKind::kList || node.kind == PickleKind::kDict;
  if (!grows || node.first == kNoNode) return {};
  return growing_[node.first];
}

std::optional<Pickle::NodeId> Pickle::state(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind != PickleKind::kObject || node.state == kNoNode) return std::nullopt;
  return node.state;
}

std::optional<Pickle::NodeId> Pickle::find(NodeId dict, std::string_view key) const {
  if (kind(dict) != PickleKind::kDict) return std::nullopt;
  const auto pairs = items(dict);
  if (pairs.size() > 2 * kMaxSmallDict) return std::nullopt;
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (kind(pairs[i]) == PickleKind::kText && text(pairs[i]) == key) return pairs[i + 1];
  }
  return std::nullopt;
}

}  // namespace evalcar::checkpoint
