#include "store/state/job_book.h"

#include "store/state/database_place.h"

namespace evalcar::state {
namespace {

constexpr int kBusyMs = 1'000;
constexpr const char* kVersion = "1";
constexpr const char* kSchema = R"sql(
CREATE TABLE job(
  number INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL CHECK(status IN ('queued','running','completed','failed','cancelled')),
  created_at TEXT NOT NULL,
  started_at TEXT NOT NULL DEFAULT '',
  completed_at TEXT NOT NULL DEFAULT '',
  request TEXT NOT NULL,
  plan TEXT NOT NULL,
  result TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT '',
  details TEXT NOT NULL DEFAULT '',
  position INTEGER NOT NULL
) STRICT;
CREATE INDEX job_by_status ON job(status, number);
PRAGMA user_version = 1;
)sql";

constexpr const char* kColumns =
    "number, job_id, status, created_at, started_at, completed_at, request, plan, result, error, "
    "details, position";

JobRow row_of(const Statement& row) {
  return {.id = row.text(1),
          .number = row.integer(0),
          .status = row.text(2),
          .created_at = row.text(3),
          .started_at = row.text(4),
          .completed_at = row.text(5),
          .request = row.text(6),
          .plan = row.text(7),
          .result = row.text(8),
          .error = row.text(9),
          .details = row.text(10),
          .position = row.integer(11)};
}

}  // namespace

Result<std::shared_ptr<Connection>> JobBook::connect(const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(auto connection,
                           Connection::open(path, Connection::Mode::kReadWriteCreate, kBusyMs));
  EVALCAR_ASSIGN_OR_RETURN(const std::string version,
                           connection->first_text("PRAGMA user_version"));
  if (version != "0" && version != kVersion) {
    return make_error(ErrorCode::kUnsupported, path + ": jobs of version " + version +
                                                   "; this program knows version " + kVersion);
  }
  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA synchronous = FULL"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string journal,
                           connection->first_text("PRAGMA journal_mode = WAL"));
  if (journal != "wal") {
    return make_error(ErrorCode::kUnsupported, path + ": SQLite keeps no WAL here");
  }
  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA cache_size = 64"));
  if (version == "0") {
    EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection));
    EVALCAR_RETURN_IF_ERROR(connection->execute(kSchema));
    EVALCAR_RETURN_IF_ERROR(transaction.commit());
  }
  connection->set_checkpoint_on_close(true);
  return connection;
}

Result<std::unique_ptr<JobBook>> JobBook::open(FileSystem& files, const std::string& path,
                                               bool allow_network_file_system) {
  EVALCAR_RETURN_IF_ERROR(make_directories(files, parent_path(path)));
  if (!allow_network_file_system) {
    EVALCAR_RETURN_IF_ERROR(check_database_place(files, parent_path(path)));
  }
  auto connection = connect(path);
  std::string aside;
  if (!connection.has_value() && connection.error().code == ErrorCode::kCorruption) {
    aside = path + ".damaged";
    for (const char* const suffix : {"-wal", "-shm"}) (void)files.remove_file(path + suffix);
    EVALCAR_RETURN_IF_ERROR(files.rename(path, aside));
    aside = connection.error().message + "; it lies aside as " + aside;
    connection = connect(path);
  }
  if (!connection.has_value()) return std::move(connection).error();
  std::unique_ptr<JobBook> book(new JobBook(path, std::move(connection).value()));
  book->set_aside_ = std::move(aside);
  return book;
}

Result<Connection*> JobBook::connection() const {
  if (connection_ != nullptr && !connection_->failed_to_sync()) return connection_.get();
  connection_.reset();
  EVALCAR_ASSIGN_OR_RETURN(connection_, connect(path_));
  return connection_.get();
}

Status JobBook::add(JobRow& job) {
  EVALCAR_ASSIGN_OR_RETURN(Connection* const sqlite, connection());
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*sqlite));
  EVALCAR_ASSIGN_OR_RETURN(job.position, count("queued"));
  EVALCAR_RETURN_IF_ERROR(sqlite->run(
      "INSERT INTO job(job_id, status, created_at, started_at, completed_at, request, plan, "
      "result, error, details, position) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
      job.id, job.status, job.created_at, job.started_at, job.completed_at, job.request, job.plan,
      job.result, job.error, job.details, job.position));
  job.number = sqlite->last_insert_id();
  return transaction.commit();
}

Status JobBook::update(const JobRow& job) {
  EVALCAR_ASSIGN_OR_RETURN(Connection* const sqlite, connection());
  return sqlite->run(
      "UPDATE job SET status = ?2, started_at = ?3, completed_at = ?4, result = ?5, error = ?6, "
      "details = ?7, position = ?8 WHERE job_id = ?1",
      job.id, job.status, job.started_at, job.completed_at, job.result, job.error, job.details,
      job.position);
}

Result<std::optional<JobRow>> JobBook::find(const std::string& id) const {
  EVALCAR_ASSIGN_OR_RETURN(Connection* const sqlite, connection());
  EVALCAR_ASSIGN_OR_RETURN(
      Statement found,
      sqlite->prepare(std::string("SELECT ") + kColumns + " FROM job WHERE job_id = ?1", id));
  EVALCAR_ASSIGN_OR_RETURN(const bool there, found.step());
  if (!there) return std::optional<JobRow>();
  return std::optional(row_of(found));
}

Result<std::vector<JobRow>> JobBook::open_jobs() const {
  EVALCAR_ASSIGN_OR_RETURN(Connection* const sqlite, connection());
  EVALCAR_ASSIGN_OR_RETURN(Statement rows,
                           sqlite->prepare(std::string("SELECT ") + kColumns +
                                           " FROM job WHERE status IN ('queued', 'running') "
                                           "ORDER BY number"));
  std::vector<JobRow> jobs;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return jobs;
    jobs.push_back(row_of(rows));
  }
}

Result<std::int64_t> JobBook::count(const std::string& status) const {
  EVALCAR_ASSIGN_OR_RETURN(Connection* const sqlite, connection());
  EVALCAR_ASSIGN_OR_RETURN(Statement counted,
                           sqlite->prepare("SELECT count(*) FROM job WHERE status = ?1", status));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, counted.step());
  return counted.integer(0);
}

Status JobBook::trim(std::int64_t keep) {
  EVALCAR_ASSIGN_OR_RETURN(Connection* const sqlite, connection());
  return sqlite->run(
      "DELETE FROM job WHERE status NOT IN ('queued', 'running') AND number NOT IN (SELECT number "
      "FROM job WHERE status NOT IN ('queued', 'running') ORDER BY completed_at DESC, number DESC "
      "LIMIT ?1)",
      keep);
}

}  // namespace evalcar::state
