// Which shard files a folder holds, by name and structure; what is in them is fsdp2_plan.cpp's.
#include <algorithm>
#include <charconv>
#include <map>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/torch_zip.h"

namespace evalcar::checkpoint {
namespace {

constexpr int kMaxWorldSize = 65536;

struct ShardName {
  int world_size = 0;
  int rank = 0;
};

/// Takes a canonical number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || number < 0 || text[0] == '-' || (digits > 1 && text[0] == '0')) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  return number;
}

/// "<stem>_world_size_4_rank_2.pt"
std::optional<ShardName> parse_shard_name(std::string_view name, std::string_view stem) {
  const std::string prefix = std::string(stem) + "_world_size_";
  constexpr std::string_view kRank = "_rank_";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto world_size = take_number(name);
  if (!world_size || !name.starts_with(kRank)) return std::nullopt;
  name.remove_prefix(kRank.size());
  const auto rank = take_number(name);
  if (!rank || name != ".pt") return std::nullopt;
  return ShardName{*world_size, *rank};
}

}  // namespace

ShardSet judge_shards(const FileSystem& files, const std::string& shard_folder,
                      std::string_view stem) {
  ShardSet set;
  const auto folder = open_folder(files, shard_folder);
  if (!folder.has_value()) {
    set.status = folder.error();
    return set;
  }
  std::map<int, std::string> by_rank;
  for (const DirectoryEntry& entry : folder->entries) {
    const auto name = parse_shard_name(entry.name, stem);
    if (!name) continue;
    if (set.world_size != 0 && name->world_size != set.world_size) {
      set.status =
          make_error(ErrorCode::kUnavailable, shard_folder + ": holds shards of two world sizes, " +
                                                  std::to_string(set.world_size) + " and " +
                                                  std::to_string(name->world_size) +
                                                  "; which of them belong together cannot be told");
      return set;
    }
    set.world_size = name->world_size;
    by_rank[name->rank] = entry.name;
  }
  if (by_rank.empty()) return set;
  if (set.world_size < 1 || set.world_size > kMaxWorldSize) {
    set.status = make_error(ErrorCode::kCorruption,
                            shard_folder + ": world size " + std::to_string(set.world_size));
    return set;
  }
  if (by_rank.rbegin()->first >= set.world_size) {
    set.status =
        make_error(ErrorCode::kCorruption, join_path(shard_folder, by_rank.rbegin()->second) +
                                               ": its rank is not below its world size");
    return set;
  }
  for (int rank = 0; rank < set.world_size; ++rank) {
    const auto found = by_rank.find(rank);
    const std::string name = std::string(stem) + "_world_size_" + std::to_string(set.world_size) +
                             "_rank_" + std::to_string(rank) + ".pt";
    const std::string path = join_path(shard_folder, name);
    if (found == by_rank.end()) {
      set.status = make_error(ErrorCode::kUnavailable, path + ": is missing");
      return set;
    }
    const auto file = open_inside(files, shard_folder, name);
    set.status = file.has_value() ? check_zip_is_whole(**file, path) : Status(file.error());
    if (!set.status.has_value()) return set;
    set.names.push_back(name);
  }
  return set;
}

}  // namespace evalcar::checkpoint
