// One metadata file of a DCP while it is read: its pickle, and what was found in it that is to be
// matched. Sizes stay in the pickle, since there may be very many.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/pickle.h"

namespace evalcar::checkpoint {

/// What one metadata file says, until its chunks and items are matched. Not thread-safe.
struct DcpSource {
  static constexpr Pickle::NodeId kNoOffset = UINT32_MAX;  ///< an item's: that of a scalar

  /// A range of a data file that a weight's chunk is in.
  struct Item {
    std::uint32_t entry = 0;
    Pickle::NodeId start = kNoOffset;
    Pickle::NodeId name = 0;
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
  };
  struct Chunk {
    std::uint32_t entry = 0;
    Pickle::NodeId start = 0;
    Pickle::NodeId size = 0;
  };

  std::string where;
  std::uint32_t number;  ///< from 1
  std::size_t bytes;
  Pickle pickle;
  std::vector<std::pair<std::uint32_t, Pickle::NodeId>> tensors = {};  ///< entry, object
  std::size_t dimensions = 0;
  std::deque<Chunk> chunks = {};
  std::deque<Item> items = {};

  /// What a file of so many bytes can name.
  std::size_t max_entries() const;
  std::size_t max_chunks() const;
  std::size_t max_items() const;
  std::size_t max_dimensions() const;

  /// The file, the text and its byte, for errors.
  std::string at(Pickle::NodeId text) const;
  /// kCorruption at a text of the pickle, or in the file.
  Error corrupt(Pickle::NodeId text, const std::string& why) const;
  Error corrupt(const std::string& why) const;

  /// A field of a dataclass; absent where it is None, too.
  std::optional<Pickle::NodeId> field(Pickle::NodeId object, std::string_view name) const;
  /// The field if it is a number from 0 on.
  std::optional<std::uint64_t> number_in(Pickle::NodeId object, std::string_view name) const;
  /// The field if it holds sizes.
  std::optional<std::vector<std::int64_t>> sizes(Pickle::NodeId object,
                                                 std::string_view name) const;
  std::optional<Pickle::NodeId> sizes_node(Pickle::NodeId object, std::string_view name) const;
  /// Of a node that sizes_node() gave; empty for kNoOffset.
  std::vector<std::int64_t> sizes_of(Pickle::NodeId node) const;
  /// Below, equal to or above 0: how the sizes of two such nodes follow each other.
  std::strong_ordering compare(Pickle::NodeId a, Pickle::NodeId b) const;
  /// Key and value of each pair of a dict: that of a field of the root, which kCorruption misses.
  Result<std::span<const Pickle::NodeId>> root_dict(std::string_view name) const;

 private:
  /// The numbers of a node of sizes, as nodes.
  std::span<const Pickle::NodeId> numbers(Pickle::NodeId node) const;
};

}  // namespace evalcar::checkpoint
