#include "store/checkpoint/pickle.h"

#include <algorithm>

#include "store/checkpoint/pickle_machine.h"

namespace evalcar::checkpoint {

std::optional<std::uint32_t> NodeRuns::add(std::span<const std::uint32_t> run) {
  constexpr std::size_t kFirstBlock = 64;
  constexpr std::size_t kLargestBlock = 16384;  // of short runs
  if (run.empty()) return 0;
  if (capacity_ - size_ < run.size()) {
    if (blocks_.size() > kOffsetMask) return std::nullopt;
    // What a block leaves unused is little: a long run has a block of its own.
    capacity_ = run.size() > kLargestBlock / 8
                    ? run.size()
                    : std::clamp(2 * capacity_, std::max(kFirstBlock, run.size()), kLargestBlock);
    blocks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(capacity_));
    bytes_ += capacity_ * sizeof(std::uint32_t);
    size_ = 0;
  }
  std::copy(run.begin(), run.end(), blocks_.back().get() + size_);
  const auto first = static_cast<std::uint32_t>((blocks_.size() - 1) << kOffsetBits | size_);
  size_ += run.size();
  return first;
}

std::size_t Pickle::memory_bytes() const {
  std::size_t bytes = nodes_.size() * sizeof(Node) + runs_.bytes();
  for (const std::vector<NodeId>& each : grown_) {
    bytes += sizeof each + each.capacity() * sizeof(NodeId);
  }
  return bytes;
}

Result<Pickle> Pickle::parse(std::string bytes, std::string_view where, PickleNames names) {
  if (bytes.size() >= UINT32_MAX) {
    return make_error(ErrorCode::kCorruption, std::string(where) + ": pickle of 4 GiB or more");
  }
  return PickleMachine(std::move(bytes), where, names).run();
}

std::int64_t Pickle::integer(NodeId id) const {
  if (is_small(id)) return static_cast<std::int64_t>(id & ~kSmallInteger);
  const Node& node = nodes_[id];
  if (node.kind == PickleKind::kBool) return node.first;
  if (node.kind != PickleKind::kInteger) return 0;
  return static_cast<std::int64_t>(std::uint64_t{node.count} << 32U | node.first);
}

std::string_view Pickle::text(NodeId id) const {
  if (kind(id) != PickleKind::kText) return {};
  return std::string_view(*bytes_).substr(nodes_[id].first, nodes_[id].count);
}

std::span<const Pickle::NodeId> Pickle::items(NodeId id) const {
  const PickleKind what = kind(id);
  if (what != PickleKind::kTuple && what != PickleKind::kList && what != PickleKind::kDict) {
    return {};
  }
  const Node& node = nodes_[id];
  if (node.grown) return grown_[node.first];
  if (node.count == 0) return {};
  return runs_.run(node.first, node.count);
}

std::optional<Pickle::NodeId> Pickle::state(NodeId id) const {
  if (kind(id) != PickleKind::kObject || nodes_[id].first == kNoNode) return std::nullopt;
  return nodes_[id].first;
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
