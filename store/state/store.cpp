// Opening the database, and what the watcher tells it: runs and checkpoints.
#include "store/state/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>

#include "store/base/dying_holder.h"
#include "store/state/schema.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

/// f_type of statfs (linux/magic.h and the file systems' own headers) where locks or shared memory
/// between processes are not dependable.
const std::map<std::uint64_t, std::string_view>& network_file_systems() {
  static const std::map<std::uint64_t, std::string_view> kTypes = {
      {0x6969, "NFS"},          {0x517B, "SMB"},        {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB2"},
      {0x0BD00BD0, "Lustre"},   {0x47504653, "GPFS"},   {0x00C36400, "Ceph"}, {0x5346414F, "AFS"},
      {0x6B414653, "AFS"},      {0x19830326, "BeeGFS"}, {0x73757245, "Coda"}, {0x564C, "NCP"},
      {0x20030528, "OrangeFS"}, {0x18031977, "WekaFS"}};
  return kTypes;
}

Status refuse_network_file_system(const FileSystem& files, const std::string& folder) {
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t type, files.file_system_type(folder));
  const auto found = network_file_systems().find(type & 0xFFFFFFFFU);
  if (found == network_file_systems().end()) return {};
  return make_error(ErrorCode::kUnsupported,
                    folder + ": is on a network file system (" + std::string(found->second) +
                        "), where SQLite can lose data; set [store] path to a local disk, e.g. "
                        "below /var/lib/evalcar");
}

}  // namespace

/// The lock of the one writer: an open-file-description lock on `<path>.lock`, given up by the
/// kernel when the process ends, however it ends. The pid in it is for people only.
struct Store::Lock {
  explicit Lock(int descriptor) : fd(descriptor) {}
  ~Lock() { ::close(fd); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  int fd;

  static struct flock whole_file() {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return lock;
  }
  /// The pid that the holder wrote.
  static std::string owner_of(int fd) {
    std::array<char, 32> text{};
    const ssize_t n = ::pread(fd, text.data(), text.size() - 1, 0);
    return {text.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  static Result<std::unique_ptr<Lock>> take(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return errno_error("open", path, errno);
    auto lock = std::make_unique<Lock>(fd);
    int error = 0;
    const bool taken = outlast_dying_holder([&] {
      struct flock whole = whole_file();
      error = ::fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
      return error != EAGAIN && error != EACCES;
    });
    if (error != 0) {
      if (taken) return errno_error("lock", path, error);
      return make_error(ErrorCode::kUnavailable,
                        path + ": another evalcar (pid " + owner_of(fd) + ") writes this database");
    }
    const std::string pid = std::to_string(::getpid());
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
      return errno_error("write", path, errno);
    }
    return lock;
  }
};

Result<std::unique_ptr<Store>> Store::open(FileSystem& files, const Clock& clock,
                                           const std::string& path, StoreOptions options) {
  const std::string folder = parent_path(path);
  EVALCAR_RETURN_IF_ERROR(make_directories(files, folder));
  if (!options.allow_network_file_system) {
    EVALCAR_RETURN_IF_ERROR(refuse_network_file_system(files, folder));
  }
  EVALCAR_ASSIGN_OR_RETURN(auto lock, Lock::take(path + ".lock"));
  EVALCAR_ASSIGN_OR_RETURN(
      auto connection,
      Connection::open(path, Connection::Mode::kReadWriteCreate, options.busy_timeout_ms));

  const auto damaged = [&](Error error) {
    if (error.code == ErrorCode::kCorruption) {
      error.message +=
          ". Move " + path + " (with -wal and -shm) aside; a new one is made at the next start";
    }
    return error;
  };
  const auto version = check_schema(*connection);
  if (!version.has_value()) return damaged(version.error());
  const auto check = connection->first_text("PRAGMA quick_check(1)");
  if (!check.has_value()) return damaged(check.error());
  if (*check != "ok") return damaged(make_error(ErrorCode::kCorruption, path + ": " + *check));

  EVALCAR_ASSIGN_OR_RETURN(const std::string journal,
                           connection->first_text("PRAGMA journal_mode = WAL"));
  if (journal != "wal") {
    return make_error(ErrorCode::kUnsupported,
                      path + ": SQLite offers journal mode '" + journal +
                          "' here, expected 'wal'; set [store] path to a local disk");
  }
  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA synchronous = FULL"));
  EVALCAR_RETURN_IF_ERROR(migrate(*connection, *version));
  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA foreign_keys = ON"));
  connection->set_checkpoint_on_close(true);
  return std::unique_ptr<Store>(new Store(std::move(connection), std::move(lock), clock, path));
}

Store::Store(std::shared_ptr<Connection> connection, std::unique_ptr<Lock> lock, const Clock& clock,
             std::string path)
    : lock_(std::move(lock)),
      connection_(std::move(connection)),
      reader_(connection_),
      clock_(clock),
      path_(std::move(path)) {}

Store::~Store() = default;

std::optional<std::int64_t> Store::writer_pid(const std::string& path) {
  const int fd = ::open((path + ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const Lock closer(fd);
  struct flock whole = Lock::whole_file();
  if (::fcntl(fd, F_OFD_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) return std::nullopt;
  const std::string owner = Lock::owner_of(fd);
  std::int64_t pid = 0;
  const auto parsed = std::from_chars(owner.data(), owner.data() + owner.size(), pid);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return pid;
}

std::string Store::now() const { return format_utc(clock_.wall_now()); }

Result<Run> Store::ensure_run(const std::string& base_name, const std::string& output_dir,
                              std::uint64_t device, std::uint64_t inode, const std::string& mark) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  std::int64_t generation = 1;
  std::optional<Run> found;
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement rows,
        connection_->prepare("SELECT run_id, name, output_dir, generation, created_at, mark, inode "
                             "FROM run WHERE base_name = ?1 ORDER BY generation DESC",
                             base_name));
    while (true) {
      EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
      if (!row) break;
      generation = std::max(generation, rows.integer(3) + 1);
      const std::string known_mark = rows.text(5);
      // A run without a mark is of an older version, or of a directory that cannot be written.
      const bool unmarked =
          known_mark.empty() && static_cast<std::uint64_t>(rows.integer(6)) == inode;
      const bool marked = !known_mark.empty() && known_mark == mark;
      if (!marked && (!unmarked || found.has_value())) continue;
      found = Run{rows.integer(0), rows.text(1), rows.text(2),
                  rows.integer(3), rows.text(4), known_mark};
      if (marked) break;
    }
  }
  if (found.has_value()) {
    if (found->mark != mark) EVALCAR_RETURN_IF_ERROR(set_mark(found->id, mark));
    found->mark = mark;
    EVALCAR_RETURN_IF_ERROR(transaction.commit());
    return *found;
  }
  Run run{0, base_name + "-" + std::to_string(generation), output_dir, generation, now(), mark};
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO run(base_name, generation, name, output_dir, device, inode, created_at, mark) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      base_name, generation, run.name, output_dir, device, inode, run.created_at, mark));
  run.id = connection_->last_insert_id();
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return run;
}

Status Store::set_mark(std::int64_t run_id, const std::string& mark) {
  return connection_->run("UPDATE run SET mark = ?2 WHERE run_id = ?1", run_id, mark);
}

namespace {

struct StoredKind {
  bool complete = false;
  std::string fingerprint;
  std::vector<FileIdentity> files;
};

/// `seen` is `before` less some files: a delete in progress.
bool is_remainder(const std::vector<FileIdentity>& seen, const std::vector<FileIdentity>& before) {
  return !seen.empty() && seen.size() < before.size() &&
         std::all_of(
             seen.begin(), seen.end(),
             [&before](const FileIdentity& file) {
               return std::find(before.begin(), before.end(), file) != before.end();
             });
}

Result<std::map<std::string, StoredKind>> stored_kinds(Connection& connection,
                                                       std::int64_t checkpoint_id) {
  std::map<std::string, StoredKind> kinds;
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection.prepare(
          "SELECT kind, complete, fingerprint, files FROM checkpoint_kind WHERE checkpoint_id = ?1",
          checkpoint_id));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return kinds;
    kinds[rows.text(0)] = {rows.integer(1) != 0, rows.text(2), decode_files(rows.text(3))};
  }
}

/// Whether the folder that is seen now is the known generation (see observe_checkpoint).
bool same_generation(const Checkpoint& known, const std::map<std::string, StoredKind>& known_kinds,
                     const CheckpointObservation& seen) {
  bool equal_content = false;
  for (const KindObservation& kind : seen.kinds) {
    const auto before = known_kinds.find(kind.kind);
    if (!kind.complete || before == known_kinds.end() || !before->second.complete) continue;
    if (before->second.fingerprint != kind.fingerprint &&
        !is_remainder(kind.files, before->second.files)) {
      return false;  // rewritten
    }
    equal_content = true;
  }
  // A folder that went between the look and this has no inode: the sighting was its delete.
  if (seen.inode == 0) return true;
  return equal_content || (known.inode == seen.inode && known.gone_at.empty());
}

}  // namespace

Result<std::int64_t> Store::insert_checkpoint(std::int64_t run_id,
                                              const CheckpointObservation& seen,
                                              std::int64_t generation) {
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO checkpoint(run_id, name, generation, step, path, layout, device, inode, seen_at)"
      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
      run_id, seen.name, generation, seen.step, seen.path, seen.layout, seen.device, seen.inode,
      now()));
  return connection_->last_insert_id();
}

Status Store::record_kinds(std::int64_t checkpoint_id, const CheckpointObservation& seen) {
  for (const KindObservation& kind : seen.kinds) {
    // A kind that was complete stays so: what looks incomplete now is being deleted, or will come
    // back as a new generation.
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT INTO checkpoint_kind(checkpoint_id, kind, complete, reason, fingerprint, "
        "size_bytes, mtime_ns, complete_at, files) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "
        "ON CONFLICT(checkpoint_id, kind) DO UPDATE SET complete = excluded.complete, "
        "reason = excluded.reason, fingerprint = excluded.fingerprint, "
        "size_bytes = excluded.size_bytes, mtime_ns = excluded.mtime_ns, "
        "complete_at = iif(complete = 1, complete_at, excluded.complete_at), "
        "files = excluded.files "
        "WHERE complete = 0 AND (excluded.complete = 1 OR reason <> excluded.reason) "
        "OR files = '' AND complete = 1 AND fingerprint = excluded.fingerprint",
        checkpoint_id, kind.kind, kind.complete, kind.complete ? std::string() : kind.reason,
        kind.complete ? kind.fingerprint : std::string(), kind.size_bytes, kind.mtime_ns,
        kind.complete ? now() : std::string(),
        kind.complete ? encode_files(kind.files) : std::string()));
  }
  return {};
}

Result<Observed> Store::observe_checkpoint(std::int64_t run_id, const CheckpointObservation& seen) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  std::optional<std::int64_t> last_id;
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement last, connection_->prepare("SELECT checkpoint_id FROM checkpoint WHERE run_id = "
                                             "?1 AND name = ?2 ORDER BY generation DESC LIMIT 1",
                                             run_id, seen.name));
    EVALCAR_ASSIGN_OR_RETURN(const bool row, last.step());
    if (row) last_id = last.integer(0);
  }
  Observed observed;
  std::int64_t id = 0;
  std::int64_t generation = 1;
  if (last_id.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(const Checkpoint known, reader_.checkpoint(*last_id));
    EVALCAR_ASSIGN_OR_RETURN(const auto kinds, stored_kinds(*connection_, *last_id));
    if (same_generation(known, kinds, seen)) {
      id = *last_id;
      if (seen.inode != 0) {
        EVALCAR_RETURN_IF_ERROR(connection_->run(
            "UPDATE checkpoint SET path = ?2, step = ?3, layout = ?4, device = ?5, inode = ?6, "
            "gone_at = '' WHERE checkpoint_id = ?1 AND (path, step, layout, device, inode, "
            "gone_at) "
            "<> (?2, ?3, ?4, ?5, ?6, '')",
            id, seen.path, seen.step, seen.layout.empty() ? known.layout : seen.layout, seen.device,
            seen.inode));
      }
    } else {
      observed.replaces = *last_id;
      generation = known.generation + 1;
    }
  }
  if (id == 0) {
    observed.is_new = true;
    EVALCAR_ASSIGN_OR_RETURN(id, insert_checkpoint(run_id, seen, generation));
  }
  EVALCAR_RETURN_IF_ERROR(record_kinds(id, seen));
  EVALCAR_ASSIGN_OR_RETURN(observed.checkpoint, reader_.checkpoint(id));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return observed;
}

Status Store::mark_checkpoint_gone(std::int64_t checkpoint_id) {
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE checkpoint SET gone_at = ?2 WHERE checkpoint_id = ?1 AND gone_at = ''", checkpoint_id,
      now()));
  if (connection_->changes() != 0) return {};
  const auto known = reader_.checkpoint(checkpoint_id);  // gone already, or never there?
  return known.has_value() ? Status{} : Status{known.error()};
}

Status Store::set_kept_path(std::int64_t checkpoint_id, const std::string& kind,
                            const std::string& path) {
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE checkpoint_kind SET kept_path = ?3 WHERE checkpoint_id = ?1 AND kind = ?2",
      checkpoint_id, kind, path));
  if (connection_->changes() == 0) {
    return make_error(
        ErrorCode::kNotFound,
        path_ + ": checkpoint " + std::to_string(checkpoint_id) + " has no " + kind + " weights");
  }
  return {};
}

}  // namespace evalcar::state
