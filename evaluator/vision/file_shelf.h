// A folder of files that can be made again, within a budget: what the picture cache, the pictures
// of samples and the preparation cache (service/) keep on the disk.
//
// A file is named by what it is of, appears by rename and is never changed; there is no index and
// no fsync: whoever reads one sees from its content whether a crash tore it. Any number of
// processes share a folder. A file's mtime says when it was last asked for, to the hour.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/guarded.h"

namespace evalcar::vision {

struct FileShelfOptions {
  std::string folder;           ///< is made when it is needed
  std::uint64_t bytes = 0;      ///< of all files together, about
  std::uint64_t keep_free = 0;  ///< of the disk, for the others who write there
  std::uint64_t block = 1;      ///< a file counts as whole blocks: bounds how many there are, too
  std::string what;             ///< for warnings: "picture cache"
};

/// Thread-safe, and safe beside other processes with the same folder. Nothing that goes wrong here
/// is an error of the evaluation: what cannot be kept is not, and the first failure is a warning on
/// stderr.
///
/// A full shelf gives up what nobody asked for in a day, and else keeps what it has: where more is
/// evaluated than fits, giving up the oldest would lose each just before its next use. Where the
/// disk runs full, the oldest go.
class FileShelf {
 public:
  /// `files` and `clock` must outlive it.
  FileShelf(FileSystem& files, const Clock& clock, FileShelfOptions options);

  /// In a folder of the first two letters of its name.
  std::string path_of(std::string_view name) const;
  /// Something may be kept now: there was room, or the pause after there was none is over.
  bool is_open();
  /// Says that the file was asked for. `mtime_ns`: as it is.
  void mark_used(const std::string& path, std::int64_t mtime_ns);
  /// Writes the file, in place of one of that name; `write` appends its `bytes`.
  void keep(std::string_view name, std::uint64_t bytes,
            const std::function<Status(WritableFile& file)>& write);

 private:
  struct State {
    std::optional<std::uint64_t> used;   ///< bytes of the files; not counted yet
    std::uint64_t since_count = 0;       ///< kept here since; others keep, too
    std::optional<MonotonicTime> until;  ///< nothing is kept before, because there was no room
    bool told_failure = false;
  };

  bool is_open(State& state) const;
  bool make_room(std::uint64_t bytes);
  Result<bool> make_room(State& state, std::uint64_t bytes);
  Status write(const std::string& path, const std::function<Status(WritableFile& file)>& write);
  void give_back(std::uint64_t bytes);
  void pause();
  bool is_taken(const std::string& path) const;
  void tell(const Error& why);

  FileSystem& files_;
  const Clock& clock_;
  const FileShelfOptions options_;
  Guarded<State> state_;
};

}  // namespace evalcar::vision
