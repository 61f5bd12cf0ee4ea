// A thin cover over SQLite's C API: a connection, a statement that goes back to the cache, a
// transaction that rolls back unless committed. Nothing here knows our tables.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace evalcar::state {

class Connection;

/// A prepared statement with its parameters bound. Reset and given back to the connection's cache
/// when destroyed. Must not outlive its connection.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  /// Goes on to the next row; false: there is none.
  Result<bool> step();
  /// Runs a statement that gives no rows.
  Status run();

  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;  ///< "" for NULL
  bool is_null(int column) const;
  std::optional<double> optional_real(int column) const;
  std::optional<std::int64_t> optional_integer(int column) const;

 private:
  friend class Connection;
  Statement(Connection& connection, sqlite3_stmt* handle, bool cached)
      : connection_(connection), handle_(handle), cached_(cached) {}
  int bind_one(int index, std::int64_t value);
  int bind_one(int index, std::uint64_t value) {
    return bind_one(index, static_cast<std::int64_t>(value));
  }
  int bind_one(int index, int value) { return bind_one(index, std::int64_t{value}); }
  int bind_one(int index, bool value) { return bind_one(index, std::int64_t{value ? 1 : 0}); }
  int bind_one(int index, double value);
  int bind_one(int index, std::string_view value);
  int bind_one(int index, const char* value) { return bind_one(index, std::string_view(value)); }
  int bind_null(int index);
  template <typename T>
  int bind_one(int index, const std::optional<T>& value) {
    return value.has_value() ? bind_one(index, *value) : bind_null(index);
  }

  Connection& connection_;
  sqlite3_stmt* handle_;
  bool cached_;
};

/// One open database. Not thread-safe. After a failed sync nothing more is done with it: what has
/// become of the descriptor's earlier writes is not known, and a second sync of it would say that
/// all is well. Whoever opens the file anew sees what is really there. Errors carry SQLite's words
/// and the file's name: kCorruption (SQLITE_CORRUPT, SQLITE_NOTADB), kUnavailable (busy, locked),
/// kIo (full, I/O error, read-only), kInternal (a broken statement or constraint).
class Connection {
 public:
  enum class Mode { kReadOnly, kReadWriteCreate };
  static Result<std::shared_ptr<Connection>> open(const std::string& path, Mode mode,
                                                  int busy_timeout_ms);
  /// As open(kReadWriteCreate), but the file must be there.
  static Result<std::shared_ptr<Connection>> open_existing(const std::string& path,
                                                           int busy_timeout_ms);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// A statement with `values` bound to its parameters ?1, ?2, …
  template <typename... Values>
  Result<Statement> prepare(std::string_view sql, const Values&... values) {
    EVALCAR_ASSIGN_OR_RETURN(Statement statement, take(sql));
    int index = 0;
    for (const int code : {0, statement.bind_one(++index, values)...}) {
      if (code != 0) return failure(code, sql);
    }
    return statement;
  }
  /// prepare + run.
  template <typename... Values>
  Status run(std::string_view sql, const Values&... values) {
    EVALCAR_ASSIGN_OR_RETURN(Statement statement, prepare(sql, values...));
    return statement.run();
  }
  /// Several statements without parameters.
  Status execute(const std::string& sql);
  /// The first column of the first row of a statement without parameters, which is run to its end;
  /// "" without a row.
  Result<std::string> first_text(std::string_view sql);
  /// The same, given up (kCancelled) soon after `give_up` says so.
  Result<std::string> first_text_until(std::string_view sql, const std::function<bool()>& give_up);

  std::int64_t last_insert_id() const;
  /// Rows changed by the last statement.
  std::int64_t changes() const;
  /// Rows that were changed since it was opened.
  std::int64_t total_changes() const;
  /// Another number after each change of the database through any other connection.
  Result<std::int64_t> data_version();
  /// The rowids of `table` that statements of this connection inserted, changed or deleted since
  /// the last call; some may be as they were (a rollback). Absent: any may be among them, as at the
  /// first call, after very many, or where another connection wrote to the database. One table a
  /// connection. Not seen: what REPLACE deletes, and DELETE of all rows at once.
  Result<std::optional<std::set<std::int64_t>>> take_touched(const char* table);
  bool in_transaction() const;
  /// Whether closing may fold the WAL into the file; off, closing leaves the file as it is.
  void set_checkpoint_on_close(bool on);
  void set_busy_timeout(int milliseconds);
  /// SQLite found the file damaged (SQLITE_CORRUPT, SQLITE_NOTADB) in some call.
  bool found_damage() const { return found_damage_; }
  /// A sync failed in some call.
  bool failed_to_sync() const { return failed_to_sync_; }
  const std::string& path() const { return path_; }

 private:
  friend class Statement;
  Connection(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  static Result<std::shared_ptr<Connection>> open_with(const std::string& path, int flags,
                                                       int busy_timeout_ms);
  /// In the place of SQLite's own, which keeps to itself that a sync of its checkpoint failed.
  static int after_commit(void* self, sqlite3* handle, const char* database, int frames);
  static void after_change(void* self, int operation, const char* database, const char* table,
                           long long row);
  Result<Statement> take(std::string_view sql);
  void give_back(sqlite3_stmt* handle, bool cached);
  Error failure(int code, std::string_view what);
  Error sync_failed() const;

  sqlite3* handle_;
  std::string path_;
  bool failed_to_sync_ = false;
  bool found_damage_ = false;
  /// What take_touched() will tell.
  struct Touched {
    std::string table;  ///< "": nobody has asked yet
    std::set<std::int64_t> rows;
    bool any = true;
    std::int64_t data_version = 0;
  } touched_;
  /// Statements that nobody uses now, by their text.
  std::map<std::string, std::vector<sqlite3_stmt*>, std::less<>> idle_;
};

/// BEGIN … COMMIT, rolled back on destruction unless committed. Writers take the write lock at
/// once, so that they cannot fail half-way for lack of it.
class Transaction {
 public:
  enum class Kind { kRead, kWrite };
  static Result<Transaction> begin(Connection& connection, Kind kind = Kind::kWrite);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Connection* connection) : connection_(connection) {}
  Connection* connection_;
};

}  // namespace evalcar::state
