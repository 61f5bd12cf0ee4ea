// How much SQLite does for this process: a count, where a time would be the machine's.
#pragma once

#include <sqlite3.h>

#include <cstdint>

namespace evalcar::test {

/// Counts what is done by databases that are opened after it was made. One at a time, and in tests
/// of one thread.
class SqliteWork {
 public:
  SqliteWork() {
    rows_ = steps_ = 0;
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(&watch));
  }
  ~SqliteWork() { sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(&watch)); }
  SqliteWork(const SqliteWork&) = delete;
  SqliteWork& operator=(const SqliteWork&) = delete;

  /// Rows that queries gave since the last call.
  std::int64_t take_rows() {
    const std::int64_t rows = rows_;
    rows_ = 0;
    return rows;
  }

  /// Instructions of SQLite's machine since the last call: also rows that a query only looked at.
  std::int64_t take_steps() {
    const std::int64_t steps = steps_;
    steps_ = 0;
    return steps;
  }

 private:
  static int watch(sqlite3* database, const char** /*error*/, const sqlite3_api_routines* /*api*/) {
    return sqlite3_trace_v2(
        database, SQLITE_TRACE_ROW | SQLITE_TRACE_PROFILE,
        [](unsigned event, void*, void* statement, void*) {
          if (event == SQLITE_TRACE_ROW) {
            ++rows_;
          } else {
            steps_ += sqlite3_stmt_status(static_cast<sqlite3_stmt*>(statement),
                                          SQLITE_STMTSTATUS_VM_STEP, 1);
          }
          return 0;
        },
        nullptr);
  }
  inline static std::int64_t rows_ = 0;
  inline static std::int64_t steps_ = 0;
};

}  // namespace evalcar::test
