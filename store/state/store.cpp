// Opening the database, and its runs.
#include "store/state/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <initializer_list>

#include "store/base/dying_holder.h"
#include "store/state/database_place.h"
#include "store/state/schema.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

Status turn_to_wal(Connection& connection) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string journal,
                           connection.first_text("PRAGMA journal_mode = WAL"));
  if (journal == "wal") return {};
  return make_error(ErrorCode::kUnsupported,
                    connection.path() + ": SQLite offers journal mode '" + journal +
                        "' here, expected 'wal'; set [store] path to a local disk");
}

/// Accepted, migrated, ready. `path` must be there.
Result<std::shared_ptr<Connection>> open_accepted(const Clock& clock, const std::string& path,
                                                  const StoreOptions& options) {
  EVALCAR_ASSIGN_OR_RETURN(auto connection,
                           Connection::open_existing(path, options.open_timeout_ms));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, check_schema(*connection));
  const MonotonicTime start = clock.monotonic_now();
  const auto check = connection->first_text_until(
      "PRAGMA quick_check(1)", [&] { return clock.monotonic_now() - start > options.check_limit; });
  const bool given_up = !check.has_value() && check.error().code == ErrorCode::kCancelled;
  if (!check.has_value() && !given_up) return check.error();
  if (check.has_value() && *check != "ok") {
    return make_error(ErrorCode::kCorruption, path + ": " + *check);
  }

  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA synchronous = FULL"));
  EVALCAR_RETURN_IF_ERROR(turn_to_wal(*connection));
  // Of pages of 4 KiB: what the agent holds stays small however large the database grows.
  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA cache_size = 128"));
  EVALCAR_RETURN_IF_ERROR(migrate(*connection, version));
  EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA foreign_keys = ON"));
  return connection;
}

/// `path` with each of these endings, where there is such a file.
Status remove_files(FileSystem& files, const std::string& path,
                    std::initializer_list<const char*> suffixes) {
  for (const char* const suffix : suffixes) {
    const Status removed = files.remove_file(path + suffix);
    if (!removed.has_value() && removed.error().code != ErrorCode::kNotFound) return removed;
  }
  return {};
}

/// An empty database under another name, brought to the disk, then renamed. What fails in between
/// is thrown away, so there is no journal: rolling back by one would sync the file once more after
/// a sync of it failed. For the same reason it is in WAL mode before it has its name.
Status make_new(FileSystem& files, const std::string& path, const StoreOptions& options) {
  const std::string temporary = path + ".new";
  // Of a killed process.
  EVALCAR_RETURN_IF_ERROR(remove_files(files, temporary, {"", "-journal", "-wal", "-shm"}));
  {
    EVALCAR_ASSIGN_OR_RETURN(
        const auto connection,
        Connection::open(temporary, Connection::Mode::kReadWriteCreate, options.open_timeout_ms));
    EVALCAR_RETURN_IF_ERROR(connection->execute("PRAGMA synchronous = FULL"));
    EVALCAR_ASSIGN_OR_RETURN(const std::string journal,
                             connection->first_text("PRAGMA journal_mode = OFF"));
    if (journal != "off") {
      return make_error(ErrorCode::kInternal, temporary + ": has the journal mode " + journal);
    }
    EVALCAR_RETURN_IF_ERROR(migrate(*connection, 0));
    EVALCAR_RETURN_IF_ERROR(turn_to_wal(*connection));
  }
  // Nothing was written since it has them.
  EVALCAR_RETURN_IF_ERROR(remove_files(files, temporary, {"-wal", "-shm"}));
  // A WAL of another file of this name would be replayed into this one.
  EVALCAR_RETURN_IF_ERROR(remove_files(files, path, {"-journal", "-wal", "-shm"}));
  EVALCAR_RETURN_IF_ERROR(files.rename(temporary, path));
  return files.sync_directory(parent_path(path));
}

constexpr std::string_view kDamaged = ".damaged-";
constexpr std::size_t kDamagedKept = 3;

/// Moves the file and what belongs to it aside; gives its new name.
Result<std::string> move_aside(FileSystem& files, const Clock& clock, const std::string& path) {
  const std::string folder = parent_path(path);
  std::string time = format_utc(clock.wall_now());
  std::erase_if(time, [](char c) { return c == ':' || c == '-'; });
  const std::string aside = path + std::string(kDamaged) + time;
  for (const char* const suffix : {"-wal", "-shm", ""}) {  // the file last: until then it is seen
    const Status moved = files.rename(path + suffix, aside + suffix);
    if (!moved.has_value() && moved.error().code != ErrorCode::kNotFound) return moved.error();
  }
  EVALCAR_RETURN_IF_ERROR(files.sync_directory(folder));
  EVALCAR_ASSIGN_OR_RETURN(const std::vector<std::string> all, damaged_files(files, path));
  for (std::size_t i = 0; i + kDamagedKept < all.size(); ++i) {
    for (const char* const suffix : {"-wal", "-shm", ""}) (void)files.remove_file(all[i] + suffix);
  }
  return aside;
}

}  // namespace

Result<std::vector<std::string>> damaged_files(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(parent_path(path)));
  const std::string start = base_name(path) + std::string(kDamaged);
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : entries) {
    const bool beside = entry.name.ends_with("-wal") || entry.name.ends_with("-shm");
    if (entry.name.starts_with(start) && !beside) {
      found.push_back(join_path(parent_path(path), entry.name));
    }
  }
  return found;
}

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
    std::array<char, 64> text{};
    const ssize_t n = ::pread(fd, text.data(), text.size() - 1, 0);
    return {text.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  static Result<std::unique_ptr<Lock>> take(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return errno_error("open", path, errno);
    auto lock = std::make_unique<Lock>(fd);
    int error = 0;
    (void)outlast_dying_holder([&] {
      struct flock whole = whole_file();
      error = ::fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
      return error != EAGAIN && error != EACCES;
    });
    if (error != 0) {
      if (error != EAGAIN && error != EACCES) return errno_error("lock", path, error);
      return make_error(ErrorCode::kUnavailable,
                        path + ": another evalcar (pid " + owner_of(fd) + ") writes this database");
    }
    const std::string pid =
        std::to_string(::getpid()) + ", since " + format_utc(SystemClock().wall_now());
    // Best effort: a full disk must not keep the holder of the lock from starting.
    if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, pid.data(), pid.size(), 0);
    return lock;
  }
};

/// Only to ask about the file: closing it gives up none of SQLite's locks.
struct Store::OpenPath {
  explicit OpenPath(const std::string& path) : fd(::open(path.c_str(), O_PATH | O_CLOEXEC)) {}
  ~OpenPath() {
    if (fd >= 0) ::close(fd);
  }
  OpenPath(const OpenPath&) = delete;
  OpenPath& operator=(const OpenPath&) = delete;
  int fd;
};

Result<std::unique_ptr<Store>> Store::open(FileSystem& files, const Clock& clock,
                                           const std::string& path, StoreOptions options) {
  const std::string folder = parent_path(path);
  EVALCAR_RETURN_IF_ERROR(make_directories(files, folder));
  if (!options.allow_network_file_system) {
    EVALCAR_RETURN_IF_ERROR(check_database_place(files, folder));
  }
  EVALCAR_ASSIGN_OR_RETURN(auto lock, Lock::take(path + ".lock"));
  RealFileSystem disk;  // SQLite's files are there, whatever `files` is
  const auto open_file = [&]() -> Result<std::shared_ptr<Connection>> {
    const auto there = disk.info_followed(path);
    if (!there.has_value()) {
      if (there.error().code != ErrorCode::kNotFound) return there.error();
      EVALCAR_RETURN_IF_ERROR(make_new(disk, path, options));
    } else if (there->size_bytes == 0) {
      return make_error(ErrorCode::kCorruption, path + ": has no bytes");
    }
    return open_accepted(clock, path, options);
  };
  auto connection = open_file();
  std::string aside;
  if (!connection.has_value() && connection.error().code == ErrorCode::kCorruption) {
    Error error = std::move(connection).error();
    if (!options.set_damaged_aside) {
      error.message +=
          ". Move " + path + " (with -wal and -shm) aside; a new one is made at the next start";
      return error;
    }
    EVALCAR_ASSIGN_OR_RETURN(aside, move_aside(disk, clock, path));
    aside = "the database was damaged (" + error.message + ") and lies aside as " + aside;
    connection = open_file();
  }
  if (!connection.has_value()) return std::move(connection).error();
  (*connection)->set_checkpoint_on_close(true);
  (*connection)->set_busy_timeout(options.busy_timeout_ms);
  std::unique_ptr<Store> store(
      new Store(std::move(connection).value(), std::move(lock), clock, path));
  store->set_aside_ = std::move(aside);
  return store;
}

Store::Store(std::shared_ptr<Connection> connection, std::unique_ptr<Lock> lock, const Clock& clock,
             std::string path)
    : lock_(std::move(lock)),
      file_(std::make_unique<OpenPath>(path)),
      connection_(std::move(connection)),
      reader_(connection_),
      clock_(clock),
      path_(std::move(path)) {}

Store::~Store() {
  // Closing would delete the WAL by its name, which may be another database's by now.
  if (has_lost_file()) connection_->set_checkpoint_on_close(false);
}

std::string Store::must_end() const {
  if (connection_->found_damage()) {
    return path_ + ": the database is damaged; the next start sets it aside and makes a new one";
  }
  if (connection_->failed_to_sync()) {
    return path_ + ": a sync of the database failed; the next start sees what is on the disk";
  }
  return "";
}

bool Store::has_lost_file() const {
  struct stat info{};
  return file_->fd >= 0 && ::fstat(file_->fd, &info) == 0 && info.st_nlink == 0;
}

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
                              std::uint64_t device, std::uint64_t inode, const std::string& mark,
                              std::int64_t generation_hint) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  std::int64_t generation = std::max<std::int64_t>(generation_hint, 1);
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

}  // namespace evalcar::state
