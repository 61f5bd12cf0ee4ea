#include "agent/stage/stage.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "agent/stage/lease_files.h"
#include "store/base/hash.h"

namespace evalcar::stage {
namespace {

constexpr std::size_t kCopyPiece = std::size_t{4} << 20U;

/// A link's target counts: linking a symlink would lease only the pointer.
Result<FileInfo> checked_source(const FileSystem& files, const std::string& path,
                                const FileInfo& judged) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo now, files.info_now(path));
  if (now.same_content_identity(judged)) return now;
  return make_error(ErrorCode::kUnavailable, path + ": changed since it was judged complete");
}

std::optional<std::uint64_t> content_hash(const FileSystem& files, const std::string& path) {
  const auto content = read_file(files, path, std::uint64_t{64} << 20U);
  if (!content.has_value()) return std::nullopt;
  return xxh3_64(std::as_bytes(std::span<const char>(content->data(), content->size())));
}

/// Of a file that cannot be asked. A disk that fails vouches for nothing.
Integrity integrity_of(const Error& error) {
  if (error.code == ErrorCode::kNotFound) return Integrity::kVanished;
  return error.code == ErrorCode::kUnavailable ? Integrity::kUnknown : Integrity::kChanged;
}

/// Nothing but our own keeping of the files failed: they are there, and are who they were.
bool may_be_read_in_place(const Error& error) {
  return error.code != ErrorCode::kNotFound && error.code != ErrorCode::kUnavailable &&
         error.code != ErrorCode::kCancelled;
}

std::uint64_t total_bytes(std::span<const watch::WatchedFile> wanted) {
  std::uint64_t bytes = 0;
  for (const watch::WatchedFile& file : wanted) bytes += file.identity.size_bytes;
  return bytes;
}

}  // namespace

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kLinked:
      return "linked";
    case Method::kCloned:
      return "cloned";
    case Method::kCopied:
      return "copied";
    case Method::kInPlace:
      break;
  }
  return "read in place";
}

Stage::Stage(FileSystem& files, std::string leases_dir, std::function<bool()> stop)
    : files_(files), leases_dir_(std::move(leases_dir)), stop_(std::move(stop)) {}

void Stage::hash_small_files(Lease& lease) const {
  for (LeasedFile& file : lease.files) {
    if (!watch::holds_weights(file.path)) file.content_hash = content_hash(files_, file.path);
  }
}

std::string Stage::own(const std::string& dir) const {
  const std::string parent = parent_path(dir);
  const bool is_lease = base_name(parent) == base_name(leases_dir_) &&
                        base_name(parent_path(parent)) == base_name(parent_path(leases_dir_));
  return is_lease ? join_path(leases_dir_, base_name(dir)) : "";
}

Result<Lease> Stage::acquire(const std::string& name, const std::string& checkpoint_dir,
                             std::span<const watch::WatchedFile> wanted,
                             std::uint64_t copy_budget) {
  auto kept = keep(name, checkpoint_dir, wanted, copy_budget);
  if (kept.has_value() || !may_be_read_in_place(kept.error())) return kept;

  spdlog::warn("{}: {}; reading in place, it may vanish before it is measured", checkpoint_dir,
               kept.error().message);
  Lease lease;
  lease.dir = checkpoint_dir;
  lease.may_be_kept = kept.error().retryable;
  for (const watch::WatchedFile& file : wanted) {
    const std::string path = join_path(checkpoint_dir, file.relative);
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, checked_source(files_, path, file.identity));
    lease.files.push_back({path, info, {}});
  }
  hash_small_files(lease);
  return lease;
}

Result<Lease> Stage::holding(const std::string& name,
                             std::span<const watch::WatchedFile> wanted) const {
  Lease lease;
  lease.dir = dir_of(name);
  lease.method = Method::kLinked;
  std::vector<std::string> paths;
  EVALCAR_RETURN_IF_ERROR(list_files(files_, lease.dir, paths));
  if (paths.size() != wanted.size() || is_reference(lease.dir)) {
    return make_error(ErrorCode::kNotFound, lease.dir + ": holds other files");
  }
  for (const watch::WatchedFile& file : wanted) {
    std::string path = join_path(lease.dir, file.relative);
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, checked_source(files_, path, file.identity));
    lease.files.push_back({std::move(path), info, {}});
  }
  hash_small_files(lease);
  return lease;
}

bool Stage::is_of(const std::string& name, std::span<const watch::WatchedFile> wanted) const {
  return std::ranges::all_of(wanted, [&](const watch::WatchedFile& file) {
    const auto now = files_.info_now(join_path(dir_of(name), file.relative));
    if (!now.has_value()) return false;
    const bool copied = now->inode != file.identity.inode &&
                        now->size_bytes == file.identity.size_bytes &&
                        now->mtime_ns >= file.identity.mtime_ns;
    return copied || now->same_content_identity(file.identity);
  });
}

Result<Lease> Stage::keep(const std::string& name, const std::string& checkpoint_dir,
                          std::span<const watch::WatchedFile> wanted, std::uint64_t copy_budget) {
  for (const watch::WatchedFile& file : wanted) {
    EVALCAR_RETURN_IF_ERROR(
        checked_source(files_, join_path(checkpoint_dir, file.relative), file.identity));
  }
  const std::string dir = dir_of(name);
  EVALCAR_RETURN_IF_ERROR(release(dir));  // what a killed process left half done

  Lease lease;
  lease.dir = dir;
  lease.method = Method::kLinked;
  Status taken = link_files(dir, checkpoint_dir, wanted, lease);
  for (const Method method : {Method::kCloned, Method::kCopied}) {
    if (taken.has_value() || !may_be_read_in_place(taken.error())) break;
    // Clones share the blocks of the checkpoint: they take no more room than links.
    if (method == Method::kCopied && total_bytes(wanted) > copy_budget) break;
    if (method == Method::kCopied) {
      spdlog::info("{}: {}; copying instead", checkpoint_dir, taken.error().message);
    }
    (void)remove_tree(files_, dir);
    lease.method = method;
    lease.files.clear();
    Status copied = copy_files(dir, checkpoint_dir, wanted, lease);
    // Why there are no links says more than that there are no clones.
    if (copied.has_value() || copied.error().code != ErrorCode::kUnsupported) {
      taken = std::move(copied);
    }
  }
  if (!taken.has_value()) {
    (void)release(dir);
    return std::move(taken).error();
  }
  hash_small_files(lease);
  return lease;
}

Status Stage::refer(const std::string& name, const std::string& dir) {
  const std::string lease = dir_of(name);
  leftovers_.erase(name);
  EVALCAR_RETURN_IF_ERROR(make_directories(files_, leases_dir_));
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, lease));
  return files_.symbolic_link(dir, lease);
}

bool Stage::is_reference(const std::string& dir) const {
  const auto info = files_.info(dir);
  return info.has_value() && info->type == FileType::kSymlink;
}

Status Stage::link_files(const std::string& dir, const std::string& checkpoint_dir,
                         std::span<const watch::WatchedFile> wanted, Lease& lease) {
  EVALCAR_RETURN_IF_ERROR(make_directories(files_, dir));
  for (const watch::WatchedFile& file : wanted) {
    const std::string to = join_path(dir, file.relative);
    EVALCAR_ASSIGN_OR_RETURN(const std::string from,
                             files_.real_path(join_path(checkpoint_dir, file.relative)));
    EVALCAR_RETURN_IF_ERROR(make_directories(files_, parent_path(to)));
    EVALCAR_RETURN_IF_ERROR(files_.hard_link(from, to));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, checked_source(files_, to, file.identity));
    lease.files.push_back({to, info, {}});
  }
  return {};
}

Status Stage::copy_files(const std::string& dir, const std::string& checkpoint_dir,
                         std::span<const watch::WatchedFile> wanted, Lease& lease) {
  EVALCAR_RETURN_IF_ERROR(make_directories(files_, dir));
  for (const watch::WatchedFile& file : wanted) {
    const std::string from = join_path(checkpoint_dir, file.relative);
    const std::string to = join_path(dir, file.relative);
    EVALCAR_RETURN_IF_ERROR(make_directories(files_, parent_path(to)));
    EVALCAR_RETURN_IF_ERROR(lease.method == Method::kCloned ? files_.clone_file(from, to)
                                                            : copy_file(from, to));
    EVALCAR_RETURN_IF_ERROR(checked_source(files_, from, file.identity));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files_.info(to));
    lease.files.push_back({to, info, {}});
  }
  return {};
}

Status Stage::copy_file(const std::string& from, const std::string& to) {
  EVALCAR_ASSIGN_OR_RETURN(const auto source, files_.open_readable(from));
  EVALCAR_ASSIGN_OR_RETURN(const auto target, files_.create(to, 0644));
  std::vector<std::byte> piece(kCopyPiece);
  for (std::uint64_t offset = 0;;) {
    if (stop_ && stop_()) return make_error(ErrorCode::kCancelled, "copy: " + from + ": stopped");
    EVALCAR_ASSIGN_OR_RETURN(const std::size_t n, source->read_at(offset, piece));
    if (n == 0) return target->close();
    EVALCAR_RETURN_IF_ERROR(target->append(std::span<const std::byte>(piece.data(), n)));
    offset += n;
  }
}

Result<Lease> Stage::reopen(const std::string& dir, const std::string& checkpoint_dir,
                            std::span<const std::string> in_place_files,
                            std::span<const state::FileIdentity> judged) const {
  Lease lease;
  lease.dir = own(dir);
  std::vector<std::string> paths;
  if (lease.dir.empty()) {
    lease.dir = checkpoint_dir;
    for (const std::string& relative : in_place_files) {
      paths.push_back(join_path(checkpoint_dir, relative));
    }
  } else {
    lease.method = Method::kLinked;
    EVALCAR_RETURN_IF_ERROR(list_files(files_, lease.dir, paths));
  }
  if (paths.empty()) return make_error(ErrorCode::kNotFound, dir + ": the lease is empty");
  EVALCAR_RETURN_IF_ERROR(check_against(lease.dir, judged));
  if (judged.empty()) {
    EVALCAR_RETURN_IF_ERROR(check_members(lease.dir));
  }
  for (std::string& path : paths) {
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files_.info_followed(path));
    lease.files.push_back({std::move(path), info, {}});
  }
  hash_small_files(lease);
  return lease;
}

Status Stage::check_against(const std::string& dir,
                            std::span<const state::FileIdentity> judged) const {
  for (const state::FileIdentity& file : judged) {
    const std::string path = join_path(dir, file.path);
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo now, files_.info_now(path));
    // A copy has an inode and a time of its own.
    const bool rewritten = now.inode == file.inode && now.mtime_ns != file.mtime_ns;
    if (now.size_bytes == file.size_bytes && !rewritten) continue;
    return make_error(ErrorCode::kCorruption, path + ": was rewritten since it was leased");
  }
  return {};
}

Result<Lease> Stage::with_ctimes_of_now(Lease lease) const {
  for (LeasedFile& file : lease.files) {
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo now, files_.info_now(file.path));
    file.identity.ctime_ns = now.ctime_ns;
  }
  return lease;
}

Integrity Stage::check(const Lease& lease, std::string* which) const {
  Integrity result = Integrity::kUnchanged;
  for (const LeasedFile& file : lease.files) {
    const auto now = files_.info_now(file.path);
    if (!now.has_value()) {
      if (which != nullptr) *which = now.error().message;
      return integrity_of(now.error());
    }
    if (!now->same_content_identity(file.identity)) {
      if (which != nullptr) *which = file.path;
      return Integrity::kChanged;
    }
    if (now->ctime_ns == file.identity.ctime_ns) continue;
    if (!file.content_hash.has_value()) {
      result = Integrity::kOnlyCtime;
      continue;
    }
    const auto hash = content_hash(files_, file.path);
    if (!hash.has_value() && !answers()) return Integrity::kUnknown;
    if (hash != file.content_hash) {
      if (which != nullptr) *which = file.path;
      return Integrity::kChanged;
    }
  }
  return result;
}

bool Stage::holds(const std::string& dir) const {
  const std::string mine = own(dir);
  return !mine.empty() && files_.info(mine).has_value();
}

Status Stage::release(const std::string& dir) {
  const std::string mine = own(dir);
  if (mine.empty()) return {};
  leftovers_.insert(base_name(mine));
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, mine));
  leftovers_.erase(base_name(mine));
  return {};
}

Status Stage::leave_others(const std::set<std::string>& wanted) {
  const auto entries = files_.list(leases_dir_);
  if (!entries.has_value()) {
    if (entries.error().code == ErrorCode::kNotFound) return {};
    return entries.error();
  }
  std::set<std::string> names;
  for (const std::string& dir : wanted) names.insert(base_name(dir));
  for (const DirectoryEntry& entry : *entries) {
    if (!names.contains(entry.name)) leftovers_.insert(entry.name);
  }
  return {};
}

Status Stage::remove_leftovers(const std::set<std::string>& needed,
                               const std::function<bool()>& enough) {
  std::erase_if(leftovers_, [&needed](const std::string& name) { return needed.contains(name); });
  Status all;
  for (auto name = leftovers_.begin(); name != leftovers_.end();) {
    const std::string dir = dir_of(*name);
    Status removed = remove_tree(files_, dir);
    if (removed.has_value()) {
      spdlog::info("{}: a lease that nobody needs any more was removed", dir);
      name = leftovers_.erase(name);
    } else {
      ++name;
      all = std::move(removed);
    }
    if (enough()) break;
  }
  return all;
}

std::vector<std::string> Stage::names() const {
  std::vector<std::string> names;
  const auto entries = files_.list(leases_dir_);
  if (!entries.has_value()) return names;
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

Held Stage::held() const {
  Held held;
  add_held(held, "");
  return held;
}

void Stage::add_held(Held& held, const std::string& prefix) const {
  for (const std::string& name : names()) {
    std::vector<std::string> paths;
    if (is_reference(dir_of(name))) continue;
    if (!list_files(files_, dir_of(name), paths).has_value()) continue;
    for (const std::string& path : paths) {
      const auto info = files_.info(path);
      if (info.has_value()) held.add(prefix + name, *info);
    }
  }
}

}  // namespace evalcar::stage
