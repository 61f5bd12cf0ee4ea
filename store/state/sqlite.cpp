#include "store/state/sqlite.h"

#include <sqlite3.h>

#include <utility>

namespace evalcar::state {
namespace {

ErrorCode error_code_of(int code) {
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorruption;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
      return ErrorCode::kUnavailable;
    case SQLITE_INTERRUPT:
      return ErrorCode::kCancelled;
    case SQLITE_CANTOPEN:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return ErrorCode::kIo;
    default:
      return ErrorCode::kInternal;
  }
}

/// Of an extended result code.
bool is_failed_sync(int code) {
  return code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC ||
         code == SQLITE_IOERR_TRUNCATE || code == SQLITE_IOERR_CLOSE;
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : connection_(other.connection_),
      handle_(std::exchange(other.handle_, nullptr)),
      cached_(other.cached_) {}

Statement::~Statement() {
  if (handle_ != nullptr) connection_.give_back(handle_, cached_);
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return connection_.failure(code, sqlite3_sql(handle_));
}

Status Statement::run() {
  EVALCAR_ASSIGN_OR_RETURN(const bool row, step());
  if (row) {
    return make_error(ErrorCode::kInternal,
                      std::string("unexpected row from: ") + sqlite3_sql(handle_));
  }
  return {};
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(handle_, column); }
double Statement::real(int column) const { return sqlite3_column_double(handle_, column); }
bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

std::string Statement::text(int column) const {
  const void* const bytes = sqlite3_column_text(handle_, column);
  if (bytes == nullptr) return "";
  return {static_cast<const char*>(bytes),
          static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

std::optional<double> Statement::optional_real(int column) const {
  if (is_null(column)) return std::nullopt;
  return real(column);
}

std::optional<std::int64_t> Statement::optional_integer(int column) const {
  if (is_null(column)) return std::nullopt;
  return integer(column);
}

int Statement::bind_one(int index, std::int64_t value) {
  return sqlite3_bind_int64(handle_, index, value);
}
int Statement::bind_one(int index, double value) {
  return sqlite3_bind_double(handle_, index, value);
}
int Statement::bind_one(int index, std::string_view value) {
  // An empty view may hold a null pointer, which SQLite would bind as NULL.
  const char* const bytes = value.empty() ? "" : value.data();
  return sqlite3_bind_text64(handle_, index, bytes, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}
int Statement::bind_null(int index) { return sqlite3_bind_null(handle_, index); }

Result<std::shared_ptr<Connection>> Connection::open(const std::string& path, Mode mode,
                                                     int busy_timeout_ms) {
  return open_with(
      path,
      SQLITE_OPEN_NOMUTEX | (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY
                                                     : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE),
      busy_timeout_ms);
}

Result<std::shared_ptr<Connection>> Connection::open_existing(const std::string& path,
                                                              int busy_timeout_ms) {
  return open_with(path, SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE, busy_timeout_ms);
}

Result<std::shared_ptr<Connection>> Connection::open_with(const std::string& path, int flags,
                                                          int busy_timeout_ms) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  if (handle == nullptr) return make_error(ErrorCode::kUnavailable, path + ": out of memory");
  const std::shared_ptr<Connection> connection(new Connection(handle, path));
  if (code != SQLITE_OK) return connection->failure(code, "open");
  sqlite3_extended_result_codes(handle, 1);
  connection->set_busy_timeout(busy_timeout_ms);
  // Until Store::open has accepted the file, closing must leave it as it was.
  connection->set_checkpoint_on_close(false);
  sqlite3_wal_hook(handle, &Connection::after_commit, connection.get());
  return connection;
}

int Connection::after_commit(void* self, sqlite3* handle, const char* database, int frames) {
  constexpr int kFrames = 1000;
  if (frames < kFrames) return SQLITE_OK;
  const int code =
      sqlite3_wal_checkpoint_v2(handle, database, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  // Anything else (a reader is in the way, no room) is tried again after the next commit.
  if (is_failed_sync(code)) static_cast<Connection*>(self)->failed_to_sync_ = true;
  return SQLITE_OK;  // the commit itself is done
}

void Connection::after_change(void* self, int /*operation*/, const char* /*database*/,
                              const char* table, long long row) {
  constexpr std::size_t kMost = 1000;
  Touched& touched = static_cast<Connection*>(self)->touched_;
  if (touched.any || touched.table != table) return;
  touched.rows.insert(row);
  touched.any = touched.rows.size() > kMost;
}

Result<std::int64_t> Connection::data_version() {
  EVALCAR_ASSIGN_OR_RETURN(Statement version, prepare("PRAGMA data_version"));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, version.step());
  return version.integer(0);
}

Result<std::optional<std::set<std::int64_t>>> Connection::take_touched(const char* table) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, data_version());
  const bool any = touched_.any || touched_.table != table || touched_.data_version != version;
  std::set<std::int64_t> rows = std::exchange(touched_.rows, {});
  if (touched_.table.empty()) sqlite3_update_hook(handle_, &Connection::after_change, this);
  touched_.table = table;
  touched_.data_version = version;
  touched_.any = false;
  if (any) return std::optional<std::set<std::int64_t>>();
  return std::optional(std::move(rows));
}

Connection::~Connection() {
  for (const auto& [sql, handles] : idle_) {
    for (sqlite3_stmt* const handle : handles) sqlite3_finalize(handle);
  }
  if (failed_to_sync_) set_checkpoint_on_close(false);  // a checkpoint would sync once more
  sqlite3_close_v2(handle_);
}

Result<Statement> Connection::take(std::string_view sql) {
  if (failed_to_sync_ && sql != "ROLLBACK") return sync_failed();
  const auto found = idle_.find(sql);
  if (found != idle_.end() && !found->second.empty()) {
    sqlite3_stmt* const handle = found->second.back();
    found->second.pop_back();
    return Statement(*this, handle, true);
  }
  sqlite3_stmt* handle = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  if (code != SQLITE_OK) return failure(code, sql);
  // PRAGMAs depend on more than their text and run once: not worth a place in the cache.
  return Statement(*this, handle, !sql.starts_with("PRAGMA"));
}

void Connection::give_back(sqlite3_stmt* handle, bool cached) {
  if (!cached) {
    sqlite3_finalize(handle);
    return;
  }
  sqlite3_reset(handle);
  sqlite3_clear_bindings(handle);
  idle_[sqlite3_sql(handle)].push_back(handle);
}

Status Connection::execute(const std::string& sql) {
  if (failed_to_sync_) return sync_failed();
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return failure(code, sql.substr(0, 80));
  return {};
}

Result<std::string> Connection::first_text(std::string_view sql) {
  EVALCAR_ASSIGN_OR_RETURN(Statement statement, prepare(sql));
  EVALCAR_ASSIGN_OR_RETURN(const bool row, statement.step());
  if (!row) return std::string();
  std::string text = statement.text(0);
  // A statement that writes (PRAGMA journal_mode) commits behind its last row: an error of that
  // would be lost with a statement that is let go before.
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool more, statement.step());
    if (!more) return text;
  }
}

Result<std::string> Connection::first_text_until(std::string_view sql,
                                                 const std::function<bool()>& give_up) {
  constexpr int kInstructions = 100'000;  // of SQLite's machine: well below a millisecond
  sqlite3_progress_handler(
      handle_, kInstructions,
      [](void* asked) { return (*static_cast<const std::function<bool()>*>(asked))() ? 1 : 0; },
      const_cast<std::function<bool()>*>(&give_up));
  auto text = first_text(sql);
  sqlite3_progress_handler(handle_, 0, nullptr, nullptr);
  return text;
}

std::int64_t Connection::last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }
std::int64_t Connection::changes() const { return sqlite3_changes(handle_); }
std::int64_t Connection::total_changes() const { return sqlite3_total_changes64(handle_); }
bool Connection::in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

void Connection::set_busy_timeout(int milliseconds) { sqlite3_busy_timeout(handle_, milliseconds); }

void Connection::set_checkpoint_on_close(bool on) {
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

Error Connection::sync_failed() const {
  return make_error(ErrorCode::kIo, path_ +
                                        ": a sync of it failed; nothing is written before it "
                                        "was closed and opened anew");
}

Error Connection::failure(int code, std::string_view what) {
  failed_to_sync_ |= is_failed_sync(code);
  found_damage_ |= error_code_of(code) == ErrorCode::kCorruption;
  std::string message = path_ + ": " + sqlite3_errmsg(handle_) + " (SQLite code " +
                        std::to_string(code) + ") in: " + std::string(what.substr(0, 120));
  return make_error(error_code_of(code), std::move(message));
}

Result<Transaction> Transaction::begin(Connection& connection, Kind kind) {
  EVALCAR_RETURN_IF_ERROR(connection.run(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"));
  return Transaction(&connection);
}

Transaction::Transaction(Transaction&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)) {}

Transaction::~Transaction() {
  // After some errors SQLite has rolled back by itself already.
  if (connection_ != nullptr && connection_->in_transaction()) (void)connection_->run("ROLLBACK");
}

Status Transaction::commit() {
  EVALCAR_RETURN_IF_ERROR(connection_->run("COMMIT"));
  connection_ = nullptr;
  return {};
}

}  // namespace evalcar::state
