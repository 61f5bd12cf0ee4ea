// The entries that a DCP's metadata files name: each one's key, its path in the saved tree, and a
// tensor's dtype and shape, the same in all files.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/dcp_names.h"
#include "store/checkpoint/dcp_source.h"
#include "store/checkpoint/dtype.h"

namespace evalcar::checkpoint {

struct DcpEntry {
  std::string key;
  std::vector<std::uint32_t> cuts;  ///< where the path's components begin in the key, but for 0
  std::vector<std::int64_t> shape;
  DType dtype = DType::kFloat32;
  bool is_tensor = false;
  bool is_described = false;  ///< dtype and shape are known
  bool is_wanted = false;     ///< by the last source: it is the model's
  std::uint32_t last_source = 0;
  std::uint32_t path_source = 0;  ///< the last one whose planner_data told the path
  std::uint32_t first_source = 0;
  std::uint32_t key_offset = 0;  ///< in the first source, for errors
};

/// Not thread-safe.
class DcpEntries {
 public:
  /// Adds what a file says in state_dict_metadata and planner_data, lists its tensors in it, and
  /// tells which entries are the model's. kCorruption or kUnsupported with the byte of the entry's
  /// name, as DcpMetadataReader::add().
  Status add(DcpSource& source);

  std::size_t size() const { return entries_.size(); }
  const DcpEntry& operator[](std::size_t index) const { return entries_[index]; }
  /// The index of the entry of that key.
  std::optional<std::uint32_t> find(std::string_view key) const;
  /// The file, the key and its byte, for errors.
  std::string where_of(const DcpEntry& entry) const;
  DcpPath path_of(const DcpEntry& entry) const;

 private:
  Status add_entries(DcpSource& source);
  Status add_tensor(const DcpSource& source, Pickle::NodeId value, DcpEntry& entry);
  Status add_paths(const DcpSource& source);
  void choose(const DcpSource& source);

  std::deque<DcpEntry> entries_;
  std::map<std::string_view, std::uint32_t> by_key_;  // into entries_
  std::vector<std::string> sources_;                  // where, by number from 1
};

}  // namespace evalcar::checkpoint
