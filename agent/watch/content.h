// What one kind of weights of a checkpoint consists of, and how two looks at it compare.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"
#include "store/state/types.h"

namespace evalcar::watch {

/// One file of a checkpoint and who it was when the checkpoint was judged complete.
struct WatchedFile {
  std::string relative;
  FileInfo identity;
};

/// A kind of weights that was judged complete before, maybe by a process before this one.
struct KnownContent {
  std::string fingerprint;
  std::vector<state::FileIdentity> files;  ///< may be empty: only the fingerprint is known
};
using KnownContents =
    std::map<std::int64_t, std::map<checkpoint::WeightsKind, KnownContent>>;  ///< by step

/// When the newest of them was written; 0: there are none.
std::int64_t written_ns(const std::vector<WatchedFile>& files);
/// By its name: what a change of makes another checkpoint.
bool holds_weights(std::string_view name);
bool contains_file(const KnownContent& content, const state::FileIdentity& file);
KnownContent content_of(const std::vector<WatchedFile>& files);
/// How many of a checkpoint's files of weights are other ones than before.
enum class Replaced { kNone, kSome, kAll };
/// Of the weights that both have, by size and time: a FUSE mount may give other inode numbers to
/// the same files. kAll if they have none in common.
Replaced weights_replaced(const KnownContent& before, const KnownContent& now);
/// `now` is what is left of `before`, unchanged: files of it are gone. Names the first of those.
std::optional<std::string> missing_of(const KnownContent& before, const KnownContent& now);

}  // namespace evalcar::watch
