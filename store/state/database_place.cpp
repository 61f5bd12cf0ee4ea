#include "store/state/database_place.h"

#include "store/base/file_system_kind.h"

namespace evalcar::state {

Status check_database_place(const FileSystem& files, const std::string& folder) {
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t type, files.file_system_type(folder));
  const FileSystemKind kind = file_system_kind(type);
  if (kind.can_hold_database()) return {};
  return make_error(ErrorCode::kUnsupported,
                    folder + ": is on a network file system (" + kind.name +
                        "), where SQLite can lose data; set [store] path to a local disk, e.g. "
                        "below /var/lib/evalcar, or store.allow_network_file_system = true if you "
                        "know that its locks and its memory maps can be trusted");
}

}  // namespace evalcar::state
