#include "evaluator/vision/file_shelf.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <utility>
#include <vector>

#include "store/base/stale_temporaries.h"

namespace evalcar::vision {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr hours kMarkAgain{1};
constexpr hours kUnused{24};
constexpr minutes kPause{10};  // after there was no room
constexpr std::size_t kMostEntries = 1U << 20U;
constexpr std::uint64_t kCountAgain = 16;  // once that part of the budget was kept

struct Entry {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;
};

std::int64_t nanoseconds(WallTime time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

std::uint64_t in_blocks(std::uint64_t bytes, std::uint64_t block) {
  return (bytes + block - 1) / block * block;
}

/// All files of the shelf. What it cannot list it does not count.
std::vector<Entry> entries_of(FileSystem& files, const std::string& folder, std::uint64_t block) {
  std::vector<Entry> entries;
  const auto parts = files.list(folder, kMostEntries);
  if (!parts.has_value()) return entries;
  for (const DirectoryEntry& part : *parts) {
    if (part.type != FileType::kDirectory) continue;
    const std::string place = join_path(folder, part.name);
    remove_stale_temporaries(files, place);
    const auto names = files.list(place, kMostEntries);
    if (!names.has_value()) continue;
    for (const DirectoryEntry& name : *names) {
      std::string path = join_path(place, name.name);
      const auto info = files.info(path);
      if (!info.has_value() || info->type != FileType::kRegular) continue;
      entries.push_back({std::move(path), in_blocks(info->size_bytes, block), info->mtime_ns});
    }
  }
  return entries;
}

std::uint64_t sum_of(const std::vector<Entry>& entries) {
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  return bytes;
}

/// Removes the least used ones down to `most` bytes, of those that nobody asked for since `idle`.
/// Gives what is left. Whoever reads one now has it open.
std::uint64_t shrink(FileSystem& files, std::vector<Entry> entries, std::uint64_t most,
                     std::int64_t idle_ns) {
  std::uint64_t used = sum_of(entries);
  std::ranges::sort(entries, {}, &Entry::used_ns);
  for (const Entry& entry : entries) {
    if (used <= most || entry.used_ns > idle_ns) break;
    if (files.remove_file(entry.path).has_value()) used -= entry.bytes;
  }
  return used;
}

}  // namespace

FileShelf::FileShelf(FileSystem& files, const Clock& clock, FileShelfOptions options)
    : files_(files), clock_(clock), options_(std::move(options)) {}

std::string FileShelf::path_of(std::string_view name) const {
  return join_path(join_path(options_.folder, name.substr(0, 2)), name);
}

bool FileShelf::is_open() {
  return state_.with([this](State& state) { return is_open(state); });
}

bool FileShelf::is_open(State& state) const {
  return !state.until.has_value() || clock_.monotonic_now() >= *state.until;
}

void FileShelf::mark_used(const std::string& path, std::int64_t mtime_ns) {
  const std::int64_t now = nanoseconds(clock_.wall_now());
  if (now - mtime_ns > std::chrono::nanoseconds(kMarkAgain).count())
    (void)files_.set_mtime(path, now);
}

void FileShelf::keep(std::string_view name, std::uint64_t bytes,
                     const std::function<Status(WritableFile& file)>& write) {
  const std::uint64_t counted = in_blocks(bytes, options_.block);
  if (!make_room(counted)) return;
  const std::string path = path_of(name);
  const Status written = this->write(path, write);
  if (written.has_value()) return;
  give_back(counted);
  tell(written.error());
  if (!is_taken(path)) pause();
}

bool FileShelf::make_room(std::uint64_t bytes) {
  const Result<bool> room = state_.with([&](State& state) -> Result<bool> {
    if (!is_open(state)) return false;
    state.until.reset();
    auto made = make_room(state, bytes);
    if (made.has_value() && *made) {
      *state.used += bytes;
      state.since_count += bytes;
    } else {
      state.until = clock_.monotonic_now() + kPause;
    }
    return made;
  });
  if (!room.has_value()) tell(room.error());
  return room.has_value() && *room;
}

Result<bool> FileShelf::make_room(State& state, std::uint64_t bytes) {
  if (!state.used.has_value() || state.since_count > options_.bytes / kCountAgain) {
    EVALCAR_RETURN_IF_ERROR(make_directories(files_, options_.folder));
    state.used = sum_of(entries_of(files_, options_.folder, options_.block));
    state.since_count = 0;
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t free, files_.free_bytes(options_.folder));
  const std::uint64_t disk = *state.used + free;
  const std::uint64_t by_disk = disk - std::min(disk, options_.keep_free);
  const std::uint64_t most = std::min(options_.bytes, by_disk);
  if (bytes > most) return false;
  if (*state.used + bytes <= most) return true;
  // A tenth more than needed, or each file would list the whole shelf.
  const std::uint64_t target = (most - bytes) / 10 * 9;
  const std::int64_t now = nanoseconds(clock_.wall_now());
  const bool disk_is_full = by_disk < options_.bytes;
  const std::int64_t idle = disk_is_full ? now : now - std::chrono::nanoseconds(kUnused).count();
  state.used = shrink(files_, entries_of(files_, options_.folder, options_.block), target, idle);
  state.since_count = 0;
  return *state.used + bytes <= most;
}

Status FileShelf::write(const std::string& path,
                        const std::function<Status(WritableFile& file)>& write) {
  static std::atomic<std::uint64_t> counter{0};
  EVALCAR_RETURN_IF_ERROR(make_directories(files_, parent_path(path)));
  // Named as write_file_atomically does, so that what a kill leaves is found.
  const std::string temporary =
      join_path(parent_path(path), "." + base_name(path) + ".tmp." + std::to_string(::getpid()) +
                                       "." + std::to_string(counter.fetch_add(1)));
  const Status written = [&]() -> Status {
    EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.create(temporary, 0600));
    EVALCAR_RETURN_IF_ERROR(write(*file));
    EVALCAR_RETURN_IF_ERROR(file->close());
    return files_.rename(temporary, path);
  }();
  if (!written.has_value()) (void)files_.remove_file(temporary);
  return written;
}

void FileShelf::give_back(std::uint64_t bytes) {
  state_.with([bytes](State& state) { *state.used -= std::min(*state.used, bytes); });
}

void FileShelf::pause() {
  state_.with([this](State& state) { state.until = clock_.monotonic_now() + kPause; });
}

/// What is not ours lies where the file, or its folder, belongs: a matter of this name alone.
bool FileShelf::is_taken(const std::string& path) const {
  const auto file = files_.info(path);
  const auto folder = files_.info(parent_path(path));
  return (file.has_value() && file->type != FileType::kRegular) ||
         (folder.has_value() && folder->type != FileType::kDirectory);
}

void FileShelf::tell(const Error& why) {
  if (state_.with([](State& state) { return std::exchange(state.told_failure, true); })) return;
  std::cerr << "warning: " << options_.what << ": " << why.message << "; not everything is kept\n";
}

}  // namespace evalcar::vision
