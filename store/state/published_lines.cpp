#include "store/state/published_lines.h"

#include "store/state/schema.h"
#include "store/state/sqlite.h"

namespace evalcar::state {

PublishedLines::PublishedLines(std::shared_ptr<Connection> connection)
    : connection_(std::move(connection)) {}

Result<PublishedLines> PublishedLines::open(const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(auto connection,
                           Connection::open(path, Connection::Mode::kReadOnly, 1'000));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, check_schema(*connection));
  if (version != kSchemaVersion) {
    return make_error(ErrorCode::kUnsupported, path + ": schema version " +
                                                   std::to_string(version) + ", expected " +
                                                   std::to_string(kSchemaVersion));
  }
  return PublishedLines(std::move(connection));
}

Result<std::optional<PublishedLine>> PublishedLines::after(std::int64_t seq,
                                                           std::int64_t current) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare("SELECT p.seq, run.name, p.line, p.published_at FROM publication p "
                           "JOIN evaluation e USING (evaluation_id) JOIN run USING (run_id) "
                           "WHERE p.seq > ?1 AND (p.published_at <> '' OR (e.state = 'scored' AND "
                           "e.run_id = ?2)) ORDER BY p.seq LIMIT 1",
                           seq, current));
  EVALCAR_ASSIGN_OR_RETURN(const bool found, rows.step());
  if (!found || rows.text(3).empty()) return std::optional<PublishedLine>();
  return std::optional(PublishedLine{rows.integer(0), rows.text(1), rows.text(2)});
}

Result<std::int64_t> PublishedLines::last() const {
  EVALCAR_ASSIGN_OR_RETURN(Statement row,
                           connection_->prepare("SELECT coalesce(max(seq), 0) FROM publication"));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool found, row.step());
  return row.integer(0);
}

}  // namespace evalcar::state
