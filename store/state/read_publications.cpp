// What went out: questions about lines of results and of scores of a part.
#include <nlohmann/json.hpp>

#include "store/state/reader.h"
#include "store/state/row_columns.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

Result<Publication> publication_of(const Statement& row) {
  Publication publication;
  std::string files;
  Columns(row) >> publication.seq >> publication.evaluation_id >> publication.line >>
      publication.supersedes >> publication.published_at >> files;
  const auto list = nlohmann::json::parse(files, nullptr, false);
  for (const auto& file : list) {
    if (file.is_string()) publication.files.push_back(file.get<std::string>());
  }
  return publication;
}

}  // namespace

Result<std::optional<Publication>> Reader::publication(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      const auto found,
      collect<Publication>(
          connection_->prepare("SELECT seq, evaluation_id, line, supersedes, published_at, files "
                               "FROM publication WHERE evaluation_id = ?1",
                               evaluation_id),
          publication_of));
  if (found.empty()) return std::optional<Publication>{};
  return std::optional<Publication>{found.front()};
}

Result<std::vector<Publication>> Reader::publications(std::int64_t run_id) const {
  return collect<Publication>(
      connection_->prepare(
          "SELECT p.seq, p.evaluation_id, p.line, p.supersedes, p.published_at, p.files "
          "FROM publication p JOIN evaluation e USING (evaluation_id) WHERE e.run_id = ?1 ORDER BY "
          "p.seq",
          run_id),
      publication_of);
}

/// CROSS JOIN: in the order of seq, from there on, and no further than the limit. Found by the run,
/// all of its rows would be sorted for each page.
Result<std::vector<Publication>> Reader::publications_after(std::int64_t run_id, std::int64_t seq,
                                                            std::size_t limit) const {
  return collect<Publication>(
      connection_->prepare(
          "SELECT p.seq, p.evaluation_id, p.line, p.supersedes, p.published_at, p.files "
          "FROM publication p CROSS JOIN evaluation e USING (evaluation_id) "
          "WHERE p.seq > ?2 AND e.run_id = ?1 ORDER BY p.seq LIMIT ?3",
          run_id, seq, limit),
      publication_of);
}

Result<std::int64_t> Reader::publication_count(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare("SELECT count(*) FROM publication p JOIN evaluation e USING "
                           "(evaluation_id) WHERE e.run_id = ?1",
                           run_id));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, rows.step());
  return rows.integer(0);
}

/// +run_id: not by the index of that, for the same reason.
Result<std::vector<InterimLine>> Reader::interim_lines_after(std::int64_t run_id, std::int64_t seq,
                                                             std::size_t limit) const {
  return collect<InterimLine>(
      connection_->prepare(
          "SELECT seq, evaluation_id, key, line, supersedes FROM interim WHERE +run_id = ?1 AND "
          "seq > ?2 ORDER BY seq LIMIT ?3",
          run_id, seq, limit),
      [](const Statement& row) -> Result<InterimLine> {
        InterimLine line;
        Columns(row) >> line.seq >> line.evaluation_id >> line.key >> line.line >> line.supersedes;
        return line;
      });
}

Result<bool> Reader::has_interim(std::int64_t evaluation_id, const std::string& key) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare("SELECT 1 FROM interim WHERE evaluation_id = ?1 AND key = ?2",
                           evaluation_id, key));
  return rows.step();
}

Result<std::optional<double>> Reader::interim_fraction(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto tries, attempts(evaluation_id));
  std::string fault_at;
  for (const Attempt& attempt : tries) {
    if (protocol::is_device_fault(attempt.error_kind)) fault_at = attempt.ended_at;
  }
  EVALCAR_ASSIGN_OR_RETURN(
      Statement newest,
      connection_->prepare("SELECT fraction FROM interim WHERE evaluation_id = ?1 AND told_at > ?2 "
                           "ORDER BY seq DESC LIMIT 1",
                           evaluation_id, fault_at));
  EVALCAR_ASSIGN_OR_RETURN(const bool row, newest.step());
  return row ? std::optional(newest.real(0)) : std::nullopt;
}

}  // namespace evalcar::state
