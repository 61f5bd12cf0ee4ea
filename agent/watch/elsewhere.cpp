#include "agent/watch/elsewhere.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <vector>

#include "store/base/text.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {
namespace {

/// Of one folder: whatever has more is none that holds runs or checkpoints alone.
constexpr std::size_t kMostEntries = 1000;
constexpr std::size_t kMostFolders = 200;
constexpr std::array<std::string_view, 6> kModels = {
    "model.safetensors",         "model.safetensors.index.json",
    "pytorch_model.bin",         "pytorch_model.bin.index.json",
    "adapter_model.safetensors", "adapter_model.bin",
};

/// Folders of a file server may take seconds each, and the agent has other work.
constexpr std::chrono::seconds kLongest{1};

bool holds_checkpoints(const FileSystem& files, const std::string& folder,
                       const std::string& pattern) {
  const auto entries = files.list(folder, kMostEntries);
  return entries.has_value() && std::ranges::any_of(*entries, [&](const DirectoryEntry& entry) {
           return entry.type == FileType::kDirectory &&
                  checkpoint::step_of_name(entry.name, pattern).has_value();
         });
}

}  // namespace

Elsewhere look_elsewhere(const FileSystem& files, const std::string& output_dir,
                         const std::string& pattern) {
  const auto entries = files.list(output_dir, kMostEntries);
  if (!entries.has_value()) return {};
  std::vector<std::string> runs;
  std::string model;
  std::size_t looked_at = 0;
  const auto own = files.info_followed(output_dir);
  const auto until = std::chrono::steady_clock::now() + kLongest;
  for (const DirectoryEntry& entry : *entries) {
    if (std::ranges::find(kModels, entry.name) != kModels.end()) model = entry.name;
    // Ours, and what people hide.
    if (entry.name.starts_with('_') || entry.name.starts_with('.')) continue;
    if (entry.type != FileType::kDirectory || ++looked_at > kMostFolders) continue;
    if (std::chrono::steady_clock::now() >= until) break;
    const std::string folder = join_path(output_dir, entry.name);
    const auto info = files.info(folder);  // another file system may not answer
    if (!own.has_value() || !info.has_value() || info->device != own->device) continue;
    if (holds_checkpoints(files, folder, pattern)) runs.push_back(printable(folder));
  }
  const std::string none = printable(output_dir) + ": holds no " + pattern + ", but ";
  if (!runs.empty()) {
    const std::size_t more = runs.size() - 1;
    const std::string others =
        more == 0 ? "" : " (and " + std::to_string(more) + " more beside it)";
    return {none + runs.back() + " does" + others,
            "point evalcar at that folder: evalcar run " + runs.back()};
  }
  if (model.empty()) return {};
  return {none + "a model itself (" + model + ")",
          "evalcar eval " + printable(output_dir) + " measures that"};
}

}  // namespace evalcar::watch
