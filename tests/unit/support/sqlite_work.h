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
    rows_ = 0;
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

 private:
  static int watch(sqlite3* database, const char** /*error*/, const sqlite3_api_routines* /*api*/) {
    return sqlite3_trace_v2(
        database, SQLITE_TRACE_ROW,
        [](unsigned, void*, void*, void*) {
          ++rows_;
          return 0;
        },
        nullptr);
  }
  inline static std::int64_t rows_ = 0;
};

}  // namespace evalcar::test
