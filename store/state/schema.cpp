#include "store/state/schema.h"

#include <charconv>
#include <string>

#include "store/state/migrations.h"

namespace evalcar::state {
namespace {

Result<std::int64_t> pragma_number(Connection& connection, const char* sql) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, connection.first_text(sql));
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Every row that another refers to is there.
Status check_references(Connection& connection) {
  EVALCAR_ASSIGN_OR_RETURN(Statement broken, connection.prepare("PRAGMA foreign_key_check"));
  EVALCAR_ASSIGN_OR_RETURN(const bool row, broken.step());
  if (!row) return {};
  return make_error(ErrorCode::kCorruption, connection.path() + ": a row of table " +
                                                broken.text(0) + " refers to one of table " +
                                                broken.text(2) + " that is not there");
}

}  // namespace

Result<std::int64_t> check_schema(Connection& connection) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version,
                           pragma_number(connection, "PRAGMA user_version"));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t owner,
                           pragma_number(connection, "PRAGMA application_id"));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t tables,
                           pragma_number(connection, "SELECT count(*) FROM sqlite_schema"));
  if (owner != kApplicationId && (tables != 0 || owner != 0)) {
    return make_error(ErrorCode::kInvalidArgument,
                      connection.path() +
                          ": is a database, but not one of evalcar (application_id " +
                          std::to_string(owner) + ", expected " + std::to_string(kApplicationId) +
                          "); choose another [store] path");
  }
  if (version > kSchemaVersion) {
    return make_error(
        ErrorCode::kUnsupported,
        connection.path() + ": schema version " + std::to_string(version) +
            ", this program knows up to " + std::to_string(kSchemaVersion) +
            "; use the newer evalcar, or another [store] path. The file is unchanged");
  }
  return version;
}

Status migrate(Connection& connection, std::int64_t version) {
  if (version == kSchemaVersion) return {};
  // A table that takes another's place would be missed by the rows that refer to it.
  EVALCAR_RETURN_IF_ERROR(connection.execute("PRAGMA foreign_keys = OFF"));
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(connection));
  for (std::int64_t v = version; v < kSchemaVersion; ++v) {
    EVALCAR_RETURN_IF_ERROR(connection.execute(migrations()[static_cast<std::size_t>(v)]));
  }
  EVALCAR_RETURN_IF_ERROR(check_references(connection));
  EVALCAR_RETURN_IF_ERROR(
      connection.execute("PRAGMA application_id = " + std::to_string(kApplicationId) +
                         "; PRAGMA user_version = " + std::to_string(kSchemaVersion)));
  return transaction.commit();
}

}  // namespace evalcar::state
