#include "store/state/picture_names.h"

#include "store/state/reader.h"
#include "store/state/schema.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

constexpr std::int64_t kFirstVersion = 9;
constexpr int kPatienceMs = 1000;

}  // namespace

Status add_picture_names(const std::string& database, std::set<std::string>& names) {
  EVALCAR_ASSIGN_OR_RETURN(auto connection,
                           Connection::open(database, Connection::Mode::kReadOnly, kPatienceMs));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, check_schema(*connection));
  if (version < kFirstVersion) return {};
  return Reader(std::move(connection)).for_each_picture([&names](std::string_view name) {
    names.emplace(name);
  });
}

}  // namespace evalcar::state
