// Stage's leases of several checkpoints at once: for the average of their weights.
#include "agent/stage/lease_files.h"
#include "agent/stage/stage.h"
#include "store/checkpoint/averaged.h"

namespace evalcar::stage {
namespace {

/// In an average's lease: the fingerprint of its members' files as they were leased.
constexpr const char* kFingerprintFile = ".evalcar-fingerprint";
constexpr std::uint64_t kMostFingerprintBytes = 1024;

}  // namespace

Status Stage::link_member(const std::string& dir, const Member& member, bool newest) {
  const std::string folder = join_path(join_path(dir, checkpoint::kMembersFolder), member.name);
  for (const state::FileIdentity& file : member.files) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string from,
                             files_.real_path(join_path(member.dir, file.path)));
    std::vector<std::string> targets = {join_path(folder, file.path)};
    const bool beside_weights =
        file.path.find('/') == std::string::npos && !watch::holds_weights(file.path);
    if (newest && beside_weights) targets.push_back(join_path(dir, file.path));
    for (const std::string& to : targets) {
      EVALCAR_RETURN_IF_ERROR(make_directories(files_, parent_path(to)));
      EVALCAR_RETURN_IF_ERROR(files_.hard_link(from, to));
    }
  }
  return {};
}

Status Stage::judge_member(const std::string& dir, const Member& member) const {
  const std::string folder = join_path(join_path(dir, checkpoint::kMembersFolder), member.name);
  const Status same = check_against(folder, member.files);
  if (same.has_value() || same.error().code != ErrorCode::kCorruption) return same;
  return make_error(ErrorCode::kUnavailable, same.error().message);
}

Result<Lease> Stage::acquire_members(const std::string& name, std::span<const Member> members) {
  const std::string dir = dir_of(name);
  leftovers_.erase(name);
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, dir));  // what a killed process left half done
  const auto take = [&]() -> Result<Lease> {
    std::vector<std::string> member_names;
    for (const Member& member : members) {
      EVALCAR_RETURN_IF_ERROR(link_member(dir, member, &member == &members.back()));
      member_names.push_back(member.name);
    }
    // Before they are judged: what is rewritten in between is refused by that.
    EVALCAR_ASSIGN_OR_RETURN(const std::string fingerprint, fingerprint_of_members(dir));
    for (const Member& member : members) EVALCAR_RETURN_IF_ERROR(judge_member(dir, member));
    EVALCAR_ASSIGN_OR_RETURN(const auto list,
                             files_.create(join_path(dir, checkpoint::kMembersFile), 0644));
    EVALCAR_RETURN_IF_ERROR(list->append(checkpoint::members_json(member_names)));
    EVALCAR_RETURN_IF_ERROR(list->sync());  // the row that trusts it will be on the disk
    EVALCAR_RETURN_IF_ERROR(list->close());
    EVALCAR_ASSIGN_OR_RETURN(const auto print,
                             files_.create(join_path(dir, kFingerprintFile), 0644));
    EVALCAR_RETURN_IF_ERROR(print->append(fingerprint));
    EVALCAR_RETURN_IF_ERROR(print->sync());
    EVALCAR_RETURN_IF_ERROR(print->close());
    EVALCAR_RETURN_IF_ERROR(sync_folders(files_, dir));
    EVALCAR_RETURN_IF_ERROR(files_.sync_directory(leases_dir_));
    return reopen(dir, dir, {});
  };
  auto lease = take();
  if (!lease.has_value()) (void)release(dir);
  return lease;
}

/// Of a checkpoint the store knows what was judged of its files; an average has no such row.
Result<std::string> Stage::fingerprint_of_members(const std::string& dir) const {
  std::vector<std::string> paths;
  EVALCAR_RETURN_IF_ERROR(list_files(files_, join_path(dir, checkpoint::kMembersFolder), paths));
  std::vector<state::FileIdentity> found;
  for (const std::string& path : paths) {
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo now, files_.info_now(path));
    // Without the inode: a directory may be copied to another disk with its leases.
    found.push_back({path.substr(dir.size()), 0, now.size_bytes, now.mtime_ns});
  }
  return state::content_fingerprint(std::move(found));
}

Result<std::size_t> Stage::count_members(const std::string& dir) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto names, checkpoint::read_members(files_, dir));
  return names.size();
}

/// The fingerprint is written last: a lease without one was cut off while it was taken.
Status Stage::check_members(const std::string& dir) const {
  const auto members = files_.info_now(join_path(dir, checkpoint::kMembersFolder));
  if (!members.has_value() && members.error().code == ErrorCode::kNotFound) return {};
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string leased,
      read_file(files_, join_path(dir, kFingerprintFile), kMostFingerprintBytes));
  EVALCAR_ASSIGN_OR_RETURN(const std::string now, fingerprint_of_members(dir));
  if (leased == now) return {};
  return make_error(ErrorCode::kCorruption,
                    dir + ": one of its checkpoints was rewritten since they were leased");
}

}  // namespace evalcar::stage
