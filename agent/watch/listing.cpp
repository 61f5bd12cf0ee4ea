#include "agent/watch/listing.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "agent/watch/tree.h"
#include "store/base/text.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {
namespace {

constexpr std::size_t kMaxIgnored = 64;

}  // namespace

Listing::Listing(const FileSystem& files, std::string output_dir, std::string pattern)
    : files_(files), output_dir_(std::move(output_dir)), pattern_(std::move(pattern)) {}

Result<std::vector<ListedFolder>> Listing::read() {
  const auto entries = files_.list(output_dir_, kMaxFolderEntries);
  if (!entries.has_value()) return entries.error();
  std::vector<ListedFolder> folders;
  for (const DirectoryEntry& entry : *entries) {
    const auto step = checkpoint::step_of_name(entry.name, pattern_);
    if (!step.has_value()) {
      const std::string prefix = pattern_.substr(0, pattern_.find('{'));
      if (!prefix.empty() && entry.name.starts_with(prefix)) {
        ignore(entry.name, "its name is not " + pattern_ + " with a whole number");
      }
      continue;
    }
    ListedFolder folder;
    folder.step = *step;
    folder.name = entry.name;
    const Entry kind = judge(entry, folder.refused);
    if (kind == Entry::kNone) continue;
    folder.unclear = kind == Entry::kUnclear;
    folders.push_back(std::move(folder));
  }
  return folders;
}

void Listing::ignore(const std::string& name, const std::string& why) {
  if (ignored_.size() >= kMaxIgnored || !ignored_.insert(name).second) return;
  spdlog::info("{}: ignored: {}", printable(join_path(output_dir_, name)), why);
}

/// A link that leads to another checkpoint of this directory is no checkpoint of its own. One that
/// leads out is told as one that cannot be read: what lies there is not this run's.
Listing::Entry Listing::judge(const DirectoryEntry& entry, std::string& refused) {
  if (entry.type == FileType::kDirectory) return Entry::kFolder;
  const std::string path = join_path(output_dir_, entry.name);
  const auto unless_gone = [](const Error& error) {
    return error.code == ErrorCode::kNotFound ? Entry::kNone : Entry::kUnclear;
  };
  const auto info = files_.info_followed(path);
  if (!info.has_value()) return unless_gone(info.error());
  if (info->type != FileType::kDirectory) return Entry::kNone;
  const auto target = files_.real_path(path);
  const auto root = files_.real_path(output_dir_);
  if (!target.has_value()) return unless_gone(target.error());
  if (!root.has_value()) return Entry::kUnclear;
  if (!target->starts_with(*root + "/")) {
    refused = path + ": is a link that leads out of the output directory, to " + *target +
              ": it is not followed";
  } else if (parent_path(*target) == *root &&
             checkpoint::step_of_name(base_name(*target), pattern_).has_value()) {
    ignore(entry.name, "a link to " + base_name(*target));
    return Entry::kNone;
  }
  return Entry::kFolder;
}

}  // namespace evalcar::watch
