// Leases: hard links to a checkpoint's files in a folder of ours, so that the trainer's retention
// cannot take them before they are measured.
//
// A lease looks like a checkpoint: `<leases>/<step>-<generation>-<kind>/` holds the same relative
// paths. Where links are impossible (another owner, a file system without them) the files are
// cloned (blocks shared, where the file system can), else copied within a budget, and where that is
// impossible too they are read in place, and may vanish.
// A link shares the inode: it protects from deletion, not from being rewritten. So every file's
// identity is taken when it is leased and checked after it was measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/stage/held.h"
#include "agent/watch/watcher.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::stage {

enum class Method { kLinked, kCloned, kCopied, kInPlace };
std::string_view method_name(Method method);

struct LeasedFile {
  std::string path;  ///< where it is read
  FileInfo identity;
  /// Of files without weights (config, tokenizer): compared where only the ctime differs. Our own
  /// link() for the other kind of weights changes it for each of them.
  std::optional<std::uint64_t> content_hash;
};

struct Lease {
  std::string dir;  ///< what the evaluator loads; the checkpoint itself if kInPlace
  Method method = Method::kInPlace;
  std::vector<LeasedFile> files;
  /// Read in place for a reason of the moment (a full disk, a limit): keep() may succeed later.
  bool may_be_kept = false;
};

/// What became of a lease's files since it was taken.
enum class Integrity {
  kUnchanged,
  kOnlyCtime,  ///< of weights: a link or unlink did that, or a rewrite with its time put back: hash
               ///< again
  kChanged,    ///< rewritten, or a disk error: whatever was measured must be thrown away
  kVanished,   ///< read in place, and removed
  kUnknown,    ///< their file system does not answer
};

/// One checkpoint of a lease of several.
struct Member {
  std::string name;  ///< of its folder in the lease
  std::string dir;   ///< where its files are now: the checkpoint, or a lease of it
  std::vector<state::FileIdentity> files;  ///< as they were when they were judged complete
};

/// Not thread-safe.
class Stage {
 public:
  /// `leases_dir`: `<output_dir>/_evalcar/leases`; made when the first lease is taken. `stop` ends
  /// a long copy (kCancelled); may be null.
  Stage(FileSystem& files, std::string leases_dir, std::function<bool()> stop);

  /// Takes a lease of `wanted`, judged complete in `checkpoint_dir`. At most `copy_budget` bytes
  /// are copied where links and clones fail. kNotFound: a file is gone (the checkpoint is being
  /// removed); kUnavailable: a file is not the one that was judged (being rewritten). Nothing stays
  /// behind after an error.
  Result<Lease> acquire(const std::string& name, const std::string& checkpoint_dir,
                        std::span<const watch::WatchedFile> wanted, std::uint64_t copy_budget);
  /// The same of files that are only worth keeping: never in place. An error besides those says why
  /// they can be neither linked nor cloned, and not copied within the budget.
  Result<Lease> keep(const std::string& name, const std::string& checkpoint_dir,
                     std::span<const watch::WatchedFile> wanted, std::uint64_t copy_budget);
  /// Takes a lease of several checkpoints at once, for the average of their weights: a folder as
  /// checkpoint/averaged.h describes it, of links only. `members`: oldest first, at least one; the
  /// last one's configuration is that of the average. Errors as acquire(), or why they cannot be
  /// linked.
  Result<Lease> acquire_members(const std::string& name, std::span<const Member> members);
  /// Of how many checkpoints such a lease is.
  Result<std::size_t> count_members(const std::string& dir) const;
  /// The lease of this name as it is there, if it links exactly these files, as they were judged.
  Result<Lease> holding(const std::string& name, std::span<const watch::WatchedFile> wanted) const;
  /// Whether it may be of them: links, or copies, which are younger than what they were made of.
  bool is_of(const std::string& name, std::span<const watch::WatchedFile> wanted) const;
  /// Makes the lease a link to `dir`, a folder elsewhere that stays until the lease is released. It
  /// keeps nothing on this disk.
  Status refer(const std::string& name, const std::string& dir);
  /// Whether a lease is such a link.
  bool is_reference(const std::string& dir) const;
  /// A lease taken by an earlier process, as it is on disk now. `judged`: its files when they were
  /// judged complete (empty: an average, whose lease knows that itself, or not known). kNotFound:
  /// it, or one of them, is not there; kCorruption: one is not what it was (rewritten in place
  /// while nobody watched).
  Result<Lease> reopen(const std::string& dir, const std::string& checkpoint_dir,
                       std::span<const std::string> in_place_files,
                       std::span<const state::FileIdentity> judged = {}) const;
  Integrity check(const Lease& lease, std::string* which = nullptr) const;
  /// The lease with its files' ctimes as they are now, all else as it was when it was taken. For
  /// who hashes the files again after this call: if they are the ones that were leased, check() of
  /// it asks for that only where they were touched since. kNotFound and such: one cannot be asked.
  Result<Lease> with_ctimes_of_now(Lease lease) const;
  /// Whether the files in a lease's folder are those that were judged: kNotFound, or kCorruption
  /// where one was rewritten in place. Reads nothing but their identities.
  Status check_against(const std::string& dir, std::span<const state::FileIdentity> judged) const;
  /// False: the file system of the leases does not answer, or did not a moment ago. What was not
  /// found may be there.
  bool answers() const { return files_.answers(leases_dir_).has_value(); }
  /// The folder of ours that a remembered lease's path means, however the output directory was
  /// spelled (a link, another mount point) when it was taken; "" for one that is read in place.
  std::string own(const std::string& dir) const;
  /// Whether that folder is there.
  bool holds(const std::string& dir) const;
  /// Gives the disk space back. A lease in place is not touched. What could not be removed (a file
  /// system that does not answer) is a leftover.
  Status release(const std::string& dir);
  /// Every lease whose folder's name is not one of `wanted` (left by a killed process) is a
  /// leftover.
  Status leave_others(const std::set<std::string>& wanted);
  bool has_leftovers() const { return !leftovers_.empty(); }
  /// Removes leftovers whose names are not `needed`, until `enough` says so behind one. An error:
  /// one that cannot be removed now; the others were tried.
  Status remove_leftovers(const std::set<std::string>& needed, const std::function<bool()>& enough);
  /// Of all leases that are there.
  Held held() const;
  /// Adds them to others, with this before their names.
  void add_held(Held& held, const std::string& prefix) const;
  /// Names of the leases that are there; empty where that cannot be asked.
  std::vector<std::string> names() const;
  /// The folder of a lease of this name.
  std::string dir_of(const std::string& name) const { return join_path(leases_dir_, name); }

 private:
  Status link_files(const std::string& dir, const std::string& checkpoint_dir,
                    std::span<const watch::WatchedFile> wanted, Lease& lease);
  /// By lease.method: cloned or copied.
  Status copy_files(const std::string& dir, const std::string& checkpoint_dir,
                    std::span<const watch::WatchedFile> wanted, Lease& lease);
  Status copy_file(const std::string& from, const std::string& to);
  Status link_member(const std::string& dir, const Member& member, bool newest);
  Status judge_member(const std::string& dir, const Member& member) const;
  Result<std::string> fingerprint_of_members(const std::string& dir) const;
  Status check_members(const std::string& dir) const;
  void hash_small_files(Lease& lease) const;

  FileSystem& files_;
  std::string leases_dir_;
  std::function<bool()> stop_;
  std::set<std::string> leftovers_;  ///< names of leases that are to go
};

}  // namespace evalcar::stage
