// What scans saw: questions about checkpoints and their files.
#include <map>
#include <nlohmann/json.hpp>

#include "store/state/reader.h"
#include "store/state/row_columns.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

constexpr std::string_view kCheckpoints =
    "SELECT c.checkpoint_id, c.run_id, run.name, c.name, c.path, c.step, c.generation, c.layout, "
    "c.device, c.inode, c.seen_at, c.gone_at FROM checkpoint c JOIN run USING (run_id) ";

Result<Checkpoint> checkpoint_of(const Statement& row) {
  Checkpoint checkpoint;
  Columns(row) >> checkpoint.id >> checkpoint.run_id >> checkpoint.run >> checkpoint.name >>
      checkpoint.path >> checkpoint.step >> checkpoint.generation >> checkpoint.layout >>
      checkpoint.device >> checkpoint.inode >> checkpoint.seen_at >> checkpoint.gone_at;
  return checkpoint;
}

}  // namespace

Result<std::vector<Checkpoint>> Reader::checkpoints(std::int64_t run_id) const {
  return collect<Checkpoint>(
      connection_->prepare(std::string(kCheckpoints) + "WHERE c.run_id = ?1 ORDER BY c.step, "
                                                       "c.generation, c.checkpoint_id",
                           run_id),
      checkpoint_of);
}

Result<Checkpoint> Reader::checkpoint(std::int64_t checkpoint_id) const {
  return only<Checkpoint>(collect<Checkpoint>(connection_->prepare(std::string(kCheckpoints) +
                                                                       "WHERE c.checkpoint_id = ?1",
                                                                   checkpoint_id),
                                              checkpoint_of),
                          "checkpoint " + std::to_string(checkpoint_id));
}

Result<std::string> Reader::incomplete_reason(std::int64_t checkpoint_id,
                                              std::string_view kind) const {
  return text_or_empty(
      connection_->prepare("SELECT reason FROM checkpoint_kind WHERE checkpoint_id "
                           "= ?1 AND kind = ?2 AND complete = 0",
                           checkpoint_id, kind));
}

Result<std::vector<KnownKind>> Reader::known_kinds(std::int64_t run_id) const {
  return collect<KnownKind>(
      connection_->prepare("SELECT c.step, c.name, c.generation, k.kind, k.fingerprint, k.files "
                           "FROM checkpoint c JOIN checkpoint_kind k USING (checkpoint_id) "
                           "WHERE c.run_id = ?1 AND k.complete = 1 AND c.generation = (SELECT "
                           "max(n.generation) FROM checkpoint n JOIN checkpoint_kind m USING "
                           "(checkpoint_id) WHERE n.run_id = ?1 AND n.name = c.name AND "
                           "m.kind = k.kind AND m.complete = 1 AND "
                           "substr(n.path, -length(n.name) - 1) = '/' || n.name) "
                           "ORDER BY c.step, k.kind",
                           run_id),
      [](const Statement& row) -> Result<KnownKind> {
        return KnownKind{row.integer(0), row.text(1), row.integer(2),
                         row.text(3),    row.text(4), decode_files(row.text(5))};
      });
}

namespace {

std::map<std::string, std::uint64_t> decode_hashes(const std::string& text) {
  std::map<std::string, std::uint64_t> by_path;
  const auto hashes = nlohmann::json::parse(text, nullptr, false);
  if (!hashes.is_object()) return by_path;
  for (const auto& [path, hash] : hashes.items()) {
    if (hash.is_number_unsigned()) by_path[path] = hash.get<std::uint64_t>();
  }
  return by_path;
}

}  // namespace

Result<std::vector<UnfinishedFolder>> Reader::unfinished(std::int64_t run_id) const {
  return collect<UnfinishedFolder>(
      connection_->prepare("SELECT step, files, older, end_ns, tails, older_tails FROM "
                           "unfinished_folder WHERE run_id = ?1",
                           run_id),
      [](const Statement& row) -> Result<UnfinishedFolder> {
        return UnfinishedFolder{
            row.integer(0),          decode_files(row.text(1)),  decode_files(row.text(2)),
            row.optional_integer(3), decode_hashes(row.text(4)), decode_hashes(row.text(5))};
      });
}

Result<std::vector<FileIdentity>> Reader::files_of(std::int64_t checkpoint_id,
                                                   std::string_view kind) const {
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string files,
      text_or_empty(connection_->prepare(
          "SELECT files FROM checkpoint_kind WHERE checkpoint_id = ?1 AND kind = ?2", checkpoint_id,
          kind)));
  return decode_files(files);
}

Result<std::string> Reader::kept_path(std::int64_t checkpoint_id, std::string_view kind) const {
  return text_or_empty(connection_->prepare(
      "SELECT kept_path FROM checkpoint_kind WHERE checkpoint_id = ?1 AND kind = ?2", checkpoint_id,
      kind));
}

Result<std::map<std::string, std::int64_t>> Reader::written_again(std::int64_t run_id,
                                                                  bool of_folders) const {
  using Named = std::pair<std::string, std::int64_t>;
  EVALCAR_ASSIGN_OR_RETURN(
      const auto rows,
      collect<Named>(connection_->prepare("SELECT name, max(generation) FROM checkpoint WHERE "
                                          "run_id = ?1 AND (?2 = 0 OR substr(path, -length(name) - "
                                          "1) = '/' || name) GROUP BY name HAVING max(generation) "
                                          "> 1",
                                          run_id, of_folders),
                     [](const Statement& row) -> Result<Named> {
                       return Named{row.text(0), row.integer(1)};
                     }));
  return std::map<std::string, std::int64_t>(rows.begin(), rows.end());
}

Result<std::optional<std::int64_t>> Reader::newest_step_there(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement row,
      connection_->prepare("SELECT max(step) FROM checkpoint WHERE run_id = ?1 AND gone_at = ''",
                           run_id));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool found, row.step());
  return row.optional_integer(0);
}

}  // namespace evalcar::state
