#include "store/checkpoint/dcp_source.h"

#include <algorithm>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {
namespace {

// Real files are far from it. An entry takes some ninety bytes at least, a chunk's or an item's
// line some forty-five, a dimension eight.
constexpr std::size_t kAllowance = 1000;

}  // namespace

std::size_t DcpSource::max_entries() const { return kAllowance + bytes / 64; }
std::size_t DcpSource::max_chunks() const { return kAllowance + bytes / 32; }
std::size_t DcpSource::max_items() const { return kAllowance + bytes / 40; }
std::size_t DcpSource::max_dimensions() const { return 64 * kAllowance + bytes / 8; }

std::string DcpSource::at(Pickle::NodeId text) const {
  return where + ": " + quote_name(pickle.text(text)) + " at byte " +
         std::to_string(pickle.text_offset(text));
}

Error DcpSource::corrupt(Pickle::NodeId text, const std::string& why) const {
  return make_error(ErrorCode::kCorruption, at(text) + ": " + why);
}

Error DcpSource::corrupt(const std::string& why) const {
  return make_error(ErrorCode::kCorruption, where + ": " + why);
}

std::optional<Pickle::NodeId> DcpSource::field(Pickle::NodeId object, std::string_view name) const {
  const auto state = pickle.state(object);
  const auto found = state ? pickle.find(*state, name) : std::nullopt;
  return found && pickle.kind(*found) != PickleKind::kNone ? found : std::nullopt;
}

std::optional<std::uint64_t> DcpSource::number_in(Pickle::NodeId object,
                                                  std::string_view name) const {
  const auto found = field(object, name);
  if (!found || pickle.kind(*found) != PickleKind::kInteger || pickle.integer(*found) < 0) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(pickle.integer(*found));
}

std::optional<std::vector<std::int64_t>> DcpSource::sizes(Pickle::NodeId object,
                                                          std::string_view name) const {
  const auto found = field(object, name);
  return found ? read_sizes(pickle, *found, kMaxDimensions) : std::nullopt;
}

std::optional<Pickle::NodeId> DcpSource::sizes_node(Pickle::NodeId object,
                                                    std::string_view name) const {
  const auto found = field(object, name);
  return found && read_sizes(pickle, *found, kMaxDimensions) ? found : std::nullopt;
}

std::vector<std::int64_t> DcpSource::sizes_of(Pickle::NodeId node) const {
  if (node == kNoOffset) return {};
  return read_sizes(pickle, node, kMaxDimensions).value_or(std::vector<std::int64_t>());
}

std::span<const Pickle::NodeId> DcpSource::numbers(Pickle::NodeId node) const {
  if (node == kNoOffset) return {};
  return pickle.items(pickle.is_object(node, PickleGlobal::kSize) ? pickle.arguments(node)[0]
                                                                  : node);
}

std::strong_ordering DcpSource::compare(Pickle::NodeId a, Pickle::NodeId b) const {
  const auto left = numbers(a);
  const auto right = numbers(b);
  for (std::size_t d = 0; d < std::min(left.size(), right.size()); ++d) {
    const auto order = pickle.integer(left[d]) <=> pickle.integer(right[d]);
    if (order != 0) return order;
  }
  return left.size() <=> right.size();
}

Result<std::span<const Pickle::NodeId>> DcpSource::root_dict(std::string_view name) const {
  const auto dict = field(pickle.root(), name);
  if (!dict || pickle.kind(*dict) != PickleKind::kDict) {
    return corrupt("has no " + std::string(name));
  }
  return pickle.items(*dict);
}

}  // namespace evalcar::checkpoint
