#include "evaluator/service/preparation_cache.h"

#include <algorithm>
#include <iostream>
#include <utility>

namespace evalcar::service {
namespace {

constexpr std::uint64_t kBlock = 4096;  // what a file takes on the disk at least

}  // namespace

PreparationCache::PreparationCache(FileSystem& files, const Clock& clock,
                                   PreparationCacheOptions options)
    : files_(files),
      clock_(clock),
      shelf_(files, clock,
             {.folder = std::move(options.folder),
              .bytes = options.bytes,
              .keep_free = options.keep_free,
              .block = kBlock,
              .what = "preparation cache"}),
      most_bytes_(std::min(options.bytes, kMostEntryBytes - kBlock)),
      made_by_(std::move(options.made_by)) {}

PreparationKey PreparationCache::key_of(const Sha256Digest& data, std::string_view common,
                                        std::string_view generation) const {
  const std::string data_hex = to_hex(data);
  Sha256 hash;
  hash.update("prepared task 1\n");
  for (const std::string_view part :
       {std::string_view(made_by_), std::string_view(data_hex), common, generation}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return hash.finish();
}

std::optional<PreparedTask> PreparationCache::find(const PreparationKey& key,
                                                   const FileSystem& data_files,
                                                   const std::stop_token& stop) {
  const std::string path = shelf_.path_of(to_hex(key));
  const auto file = files_.open_readable(path);
  if (!file.has_value()) return std::nullopt;
  auto task = read_prepared(**file, key, path);
  if (!task.has_value()) {
    if (task.error().code != ErrorCode::kCorruption) return std::nullopt;
    (void)files_.remove_file(path);
    if (!told_damage_.exchange(true))
      std::cerr << "warning: preparation cache: " << task.error().message << "; made anew\n";
    return std::nullopt;
  }
  if (!are_unchanged(data_files, task->read, stop)) return std::nullopt;
  if (const auto info = (*file)->info(); info.has_value()) shelf_.mark_used(path, info->mtime_ns);
  return std::move(*task);
}

void PreparationCache::keep(const PreparationKey& key, PreparedTask task, PreparedTaskPacker packer,
                            const ReadRecord& read, const std::stop_token& stop) {
  auto proof = read.proof(stop);
  if (!proof.has_value()) return;
  task.read = std::move(*proof);
  const std::string packed = packer.finish(task);
  if (packed.size() > most_bytes_) return;
  shelf_.keep(to_hex(key), prepared_bytes(packed),
              [&](WritableFile& file) { return write_prepared(file, key, packed); });
}

}  // namespace evalcar::service
