// What scans saw: checkpoint folders, their generations, and those that are not complete yet.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {
namespace {

struct StoredKind {
  bool complete = false;
  std::string fingerprint;
  std::vector<FileIdentity> files;
};

/// `seen` is `before` less some files: a delete in progress.
bool is_remainder(const std::vector<FileIdentity>& seen, const std::vector<FileIdentity>& before) {
  return !seen.empty() && seen.size() < before.size() &&
         std::all_of(
             seen.begin(), seen.end(),
             [&before](const FileIdentity& file) {
               return std::find(before.begin(), before.end(), file) != before.end();
             });
}

Result<std::map<std::string, StoredKind>> stored_kinds(Connection& connection,
                                                       std::int64_t checkpoint_id) {
  std::map<std::string, StoredKind> kinds;
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection.prepare(
          "SELECT kind, complete, fingerprint, files FROM checkpoint_kind WHERE checkpoint_id = ?1",
          checkpoint_id));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return kinds;
    kinds[rows.text(0)] = {rows.integer(1) != 0, rows.text(2), decode_files(rows.text(3))};
  }
}

/// Whether the folder that is seen now is the known generation (see observe_checkpoint).
bool same_generation(const Checkpoint& known, const std::map<std::string, StoredKind>& known_kinds,
                     const CheckpointObservation& seen) {
  bool equal_content = false;
  for (const KindObservation& kind : seen.kinds) {
    const auto before = known_kinds.find(kind.kind);
    if (!kind.complete || before == known_kinds.end() || !before->second.complete) continue;
    if (before->second.fingerprint != kind.fingerprint &&
        !is_remainder(kind.files, before->second.files)) {
      return false;  // rewritten
    }
    equal_content = true;
  }
  // A folder that went between the look and this has no inode: the sighting was its delete.
  if (seen.inode == 0) return true;
  return equal_content || (known.inode == seen.inode && known.gone_at.empty());
}

}  // namespace

Result<std::int64_t> Store::insert_checkpoint(std::int64_t run_id,
                                              const CheckpointObservation& seen,
                                              std::int64_t generation) {
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO checkpoint(run_id, name, generation, step, path, layout, device, inode, seen_at)"
      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
      run_id, seen.name, generation, seen.step, seen.path, seen.layout, seen.device, seen.inode,
      now()));
  return connection_->last_insert_id();
}

Status Store::record_kinds(std::int64_t checkpoint_id, const CheckpointObservation& seen) {
  for (const KindObservation& kind : seen.kinds) {
    // A kind that was complete stays so: what looks incomplete now is being deleted, or will come
    // back as a new generation.
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT INTO checkpoint_kind(checkpoint_id, kind, complete, reason, fingerprint, "
        "size_bytes, mtime_ns, complete_at, files) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "
        "ON CONFLICT(checkpoint_id, kind) DO UPDATE SET complete = excluded.complete, "
        "reason = excluded.reason, fingerprint = excluded.fingerprint, "
        "size_bytes = excluded.size_bytes, mtime_ns = excluded.mtime_ns, "
        "complete_at = iif(complete = 1, complete_at, excluded.complete_at), "
        "files = excluded.files "
        "WHERE complete = 0 AND (excluded.complete = 1 OR reason <> excluded.reason) "
        "OR files = '' AND complete = 1 AND fingerprint = excluded.fingerprint",
        checkpoint_id, kind.kind, kind.complete, kind.complete ? std::string() : kind.reason,
        kind.complete ? kind.fingerprint : std::string(), kind.size_bytes, kind.mtime_ns,
        kind.complete ? now() : std::string(),
        kind.complete ? encode_files(kind.files) : std::string()));
  }
  return {};
}

Result<std::int64_t> Store::generation_of(std::int64_t run_id, const CheckpointObservation& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const KnownAs known, known_as(run_id, seen));
  if (known.same.has_value()) return known.same->generation;
  if (known.below.has_value()) return *known.below;
  return known.newest.has_value() ? known.newest->generation + 1 : 1;
}

Result<std::optional<std::int64_t>> Store::newest_generation(std::int64_t run_id,
                                                             const std::string& name,
                                                             bool of_folder) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement last,
      connection_->prepare("SELECT checkpoint_id FROM checkpoint WHERE run_id = ?1 AND name = ?2 "
                           "AND (?3 = 0 OR substr(path, -length(name) - 1) = '/' || name) "
                           "ORDER BY generation DESC LIMIT 1",
                           run_id, name, of_folder));
  EVALCAR_ASSIGN_OR_RETURN(const bool row, last.step());
  return row ? std::optional(last.integer(0)) : std::nullopt;
}

Result<Store::KnownAs> Store::known_as(std::int64_t run_id, const CheckpointObservation& seen) {
  KnownAs known;
  EVALCAR_ASSIGN_OR_RETURN(const auto last_id, newest_generation(run_id, seen.name));
  if (!last_id.has_value()) return known;
  EVALCAR_ASSIGN_OR_RETURN(known.newest, reader_.checkpoint(*last_id));
  const bool elsewhere = lies_elsewhere(seen.path, seen.name);
  if (lies_elsewhere(known.newest->path, seen.name) == elsewhere) {
    EVALCAR_ASSIGN_OR_RETURN(const auto kinds, stored_kinds(*connection_, *last_id));
    if (same_generation(*known.newest, kinds, seen)) known.same = known.newest;
    return known;
  }
  if (!elsewhere) EVALCAR_RETURN_IF_ERROR(find_beside_weights(run_id, seen, known));
  if (!known.same.has_value() && seen.inode == 0) known.same = known.newest;
  return known;
}

/// All that is seen was written before any of the weights of that checkpoint.
Result<bool> Store::is_older(const CheckpointObservation& seen, std::int64_t than_checkpoint) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement weights,
      connection_->prepare("SELECT max(mtime_ns) FROM checkpoint_kind WHERE checkpoint_id = ?1 AND "
                           "complete = 1",
                           than_checkpoint));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool found, weights.step());
  const std::int64_t written_ns = weights.integer(0);
  return !seen.kinds.empty() &&
         std::ranges::all_of(seen.kinds, [written_ns](const KindObservation& kind) {
           return kind.mtime_ns > 0 && kind.mtime_ns < written_ns;
         });
}

/// The folder beside weights that lay elsewhere: the generation before them, if it is that still,
/// or if all of it is older. That one may not be known: the database that knew it was lost, and
/// nothing was published of it. What is whole else, and was not known so, was written since: it
/// comes after them.
Status Store::find_beside_weights(std::int64_t run_id, const CheckpointObservation& seen,
                                  KnownAs& known) {
  EVALCAR_ASSIGN_OR_RETURN(const bool older, is_older(seen, known.newest->id));
  EVALCAR_ASSIGN_OR_RETURN(const auto id, newest_generation(run_id, seen.name, true));
  if (!id.has_value()) {
    if (!older) return {};
    EVALCAR_ASSIGN_OR_RETURN(
        Statement first,
        connection_->prepare(
            "SELECT min(generation) FROM checkpoint WHERE run_id = ?1 AND name = ?2", run_id,
            seen.name));
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool found, first.step());
    known.below = first.integer(0) - 1;
    return {};
  }
  EVALCAR_ASSIGN_OR_RETURN(Checkpoint folder, reader_.checkpoint(*id));
  EVALCAR_ASSIGN_OR_RETURN(const auto kinds, stored_kinds(*connection_, *id));
  const bool is_known = std::ranges::all_of(seen.kinds, [&kinds](const KindObservation& kind) {
    const auto before = kinds.find(kind.kind);
    return !kind.complete || (before != kinds.end() && before->second.complete);
  });
  if ((is_known || older) && same_generation(folder, kinds, seen)) known.same = std::move(folder);
  return {};
}

Result<Observed> Store::observe_checkpoint(std::int64_t run_id, const CheckpointObservation& seen,
                                           std::int64_t at_least) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_ASSIGN_OR_RETURN(const KnownAs known, known_as(run_id, seen));
  Observed observed;
  std::int64_t id = 0;
  if (known.same.has_value()) {
    id = known.same->id;
    observed.is_older = known.same->generation < known.newest->generation;
    if (seen.inode != 0) {
      EVALCAR_RETURN_IF_ERROR(connection_->run(
          "UPDATE checkpoint SET path = ?2, step = ?3, layout = ?4, device = ?5, inode = ?6, "
          "gone_at = '' WHERE checkpoint_id = ?1 AND (path, step, layout, device, inode, "
          "gone_at) "
          "<> (?2, ?3, ?4, ?5, ?6, '')",
          id, seen.path, seen.step, seen.layout.empty() ? known.same->layout : seen.layout,
          seen.device, seen.inode));
    }
  } else if (known.below.has_value()) {
    observed.is_new = observed.is_older = true;
    EVALCAR_ASSIGN_OR_RETURN(id, insert_checkpoint(run_id, seen, *known.below));
  } else {
    if (known.newest.has_value()) observed.replaces = known.newest->id;
    observed.is_new = true;
    const std::int64_t next = known.newest.has_value() ? known.newest->generation + 1 : 1;
    EVALCAR_ASSIGN_OR_RETURN(id, insert_checkpoint(run_id, seen, std::max(next, at_least)));
  }
  EVALCAR_RETURN_IF_ERROR(record_kinds(id, seen));
  EVALCAR_ASSIGN_OR_RETURN(observed.checkpoint, reader_.checkpoint(id));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return observed;
}

Status Store::mark_checkpoint_gone(std::int64_t checkpoint_id) {
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE checkpoint SET gone_at = ?2 WHERE checkpoint_id = ?1 AND gone_at = ''", checkpoint_id,
      now()));
  if (connection_->changes() != 0) return {};
  const auto known = reader_.checkpoint(checkpoint_id);  // gone already, or never there?
  return known.has_value() ? Status{} : Status{known.error()};
}

Status Store::set_kept_path(std::int64_t checkpoint_id, const std::string& kind,
                            const std::string& path) {
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE checkpoint_kind SET kept_path = ?3 WHERE checkpoint_id = ?1 AND kind = ?2",
      checkpoint_id, kind, path));
  if (connection_->changes() == 0) {
    return make_error(
        ErrorCode::kNotFound,
        path_ + ": checkpoint " + std::to_string(checkpoint_id) + " has no " + kind + " weights");
  }
  return {};
}

namespace {

std::string encode_hashes(const std::map<std::string, std::uint64_t>& by_path) {
  return nlohmann::json(by_path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Status Store::set_unfinished(std::int64_t run_id, std::span<const UnfinishedFolder> seen,
                             std::span<const std::int64_t> ended) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  for (const UnfinishedFolder& folder : seen) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT OR REPLACE INTO unfinished_folder(run_id, step, files, older, end_ns, tails, "
        "older_tails, seen_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        run_id, folder.step, encode_files(folder.files), encode_files(folder.older), folder.end_ns,
        encode_hashes(folder.tails), encode_hashes(folder.older_tails), now()));
  }
  for (const std::int64_t step : ended) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "DELETE FROM unfinished_folder WHERE run_id = ?1 AND step = ?2", run_id, step));
  }
  return transaction.commit();
}

}  // namespace evalcar::state
