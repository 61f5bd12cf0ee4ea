#include "agent/run/run_identity.h"

#include <algorithm>
#include <random>

#include "store/checkpoint/home_place.h"
#include "store/checkpoint/layout.h"

namespace evalcar::run {
namespace {

constexpr std::size_t kMarkLength = 32;
constexpr std::string_view kHex = "0123456789abcdef";

}  // namespace

std::string read_mark(const FileSystem& files, const std::string& home) {
  auto text = read_file(files, join_path(home, checkpoint::kRunMarkFile), 100);
  if (!text.has_value()) return "";
  if (text->ends_with('\n')) text->pop_back();
  const bool whole =
      text->size() == kMarkLength && text->find_first_not_of(kHex) == std::string::npos;
  return whole ? *text : "";
}

Status write_mark(FileSystem& files, const std::string& home, const std::string& mark) {
  return write_file_atomically(files, join_path(home, checkpoint::kRunMarkFile), mark + "\n");
}

std::string new_mark() {
  std::random_device device;
  std::uniform_int_distribution<std::size_t> digit(0, kHex.size() - 1);
  std::string mark(kMarkLength, '0');
  for (char& c : mark) c = kHex[digit(device)];
  return mark;
}

bool holds_checkpoints(const FileSystem& files, const std::string& output_dir,
                       const std::string& pattern) {
  const auto entries = files.list(output_dir);
  if (!entries.has_value()) return false;
  return std::any_of(entries->begin(), entries->end(), [&pattern](const DirectoryEntry& entry) {
    return checkpoint::step_of_name(entry.name, pattern).has_value();
  });
}

bool holds_content(const FileSystem& files, const std::string& output_dir,
                   const std::vector<state::KnownKind>& known) {
  for (const state::KnownKind& kind : known) {
    const std::string folder = join_path(output_dir, kind.name);
    for (const state::FileIdentity& file : kind.files) {
      const auto info = files.info_followed(join_path(folder, file.path));
      if (!info.has_value()) continue;
      const state::FileIdentity now{file.path, info->inode, info->size_bytes, info->mtime_ns};
      if (now == file) return true;
    }
  }
  return false;
}

}  // namespace evalcar::run
