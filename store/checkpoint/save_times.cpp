#include "store/checkpoint/save_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

namespace evalcar::checkpoint {
namespace {

/// When a rank wrote: its first file of weights, and its last file of any kind.
struct Writing {
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
  std::string path;  // of the first
};

/// The digits behind `before` in a name; "" if there are none.
std::string digits_after(std::string_view name, std::string_view before) {
  const std::size_t at = name.find(before);
  if (at == std::string_view::npos) return {};
  name.remove_prefix(at + before.size());
  return std::string(name.substr(0, name.find_first_not_of("0123456789")));
}

/// The rank that wrote a file of weights, as its name has it; "" if it does not say.
std::string rank_of(Layout layout, const std::string& name) {
  switch (layout) {
    case Layout::kLmmsEngineFsdp2:
    case Layout::kDeepspeedZero:
      return digits_after(name, "_rank_");
    case Layout::kDcp:
      return name.starts_with("__") ? digits_after(name, "__") : "";
    case Layout::kDcpSafetensors:
      return name.starts_with("shard-") ? digits_after(name, "shard-") : "";
    default:
      return {};
  }
}

/// What else the rank of a file of weights wrote in the same save.
std::vector<std::string> written_beside(Layout layout, const std::string& path,
                                        const std::string& rank) {
  std::vector<std::string> paths;
  if (layout == Layout::kDcp)
    paths.push_back(join_path(parent_path(path), "__" + rank + ".metadata"));
  if (layout == Layout::kLmmsEngineFsdp2) {
    const std::string name = base_name(path);
    const std::string rest = name.substr(std::min(name.find("_world_size_"), name.size()));
    for (const std::string folder : {"optimizer", "extra_state", "dataloader_state"}) {
      paths.push_back(join_path(join_path(parent_path(parent_path(path)), folder), folder + rest));
    }
  }
  return paths;
}

std::map<std::string, Writing> writings(const FileSystem& files, const Plan& plan) {
  std::map<std::string, Writing> by_rank;
  for (const PlanFile& file : plan.files) {
    const std::string rank = rank_of(plan.layout, base_name(file.path));
    if (rank.empty()) continue;
    const std::int64_t written = file.identity.mtime_ns;
    const auto [place, fresh] = by_rank.try_emplace(rank, Writing{written, written, file.path});
    Writing& writing = place->second;
    if (written < writing.first_ns) {
      writing.first_ns = written;
      writing.path = file.path;
    }
    writing.last_ns = std::max(writing.last_ns, written);
    for (const std::string& beside : written_beside(plan.layout, file.path, rank)) {
      const auto info = files.info_followed(beside);
      if (info.has_value()) writing.last_ns = std::max(writing.last_ns, info->mtime_ns);
    }
  }
  return by_rank;
}

}  // namespace

std::string doubt_of_one_save(const FileSystem& files, const Plan& plan) {
  if (plan.layout == Layout::kDcp && !plan.files.empty() &&
      files.info(join_path(parent_path(plan.files[0].path), ".metadata")).has_value()) {
    return {};
  }
  const std::map<std::string, Writing> by_rank = writings(files, plan);
  if (by_rank.size() < 2) return {};
  const Writing* late = &by_rank.begin()->second;  // began last
  const Writing* early = late;                     // ended first
  std::int64_t longest_ns = kSaveSpreadNs;
  for (const auto& [rank, writing] : by_rank) {
    if (writing.first_ns > late->first_ns) late = &writing;
    if (writing.last_ns < early->last_ns) early = &writing;
    longest_ns = std::max(longest_ns, writing.last_ns - writing.first_ns);
  }
  const std::int64_t apart_ns = late->first_ns - early->last_ns;
  if (apart_ns <= longest_ns) return {};
  return late->path + " was written " + std::to_string(apart_ns / 60'000'000'000) +
         " minutes after the rank of " + early->path +
         " had written everything: the weights may be of two saves";
}

}  // namespace evalcar::checkpoint
