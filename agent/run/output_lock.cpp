#include "agent/run/output_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "store/base/clock.h"
#include "store/base/dying_holder.h"
#include "store/base/file_system.h"
#include "store/base/text.h"

namespace evalcar::run {
namespace {

using supervise::OwnedFd;

std::string random_token() {
  std::random_device device;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", device(), device());
  return text.data();
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Of a process that can be asked about by its pid: this boot of this machine, this pid namespace.
std::string this_machine() {
  struct stat names{};
  if (::stat("/proc/self/ns/pid", &names) != 0) return "-";
  const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id");
  return (boot.empty() ? "-" : boot) + "/" + std::to_string(names.st_ino);
}

/// When a process began, in ticks since boot: a pid alone may be another's by now. "" if it is not
/// there.
std::string start_of(std::int64_t pid) {
  const std::string stat = first_line_of("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22 && (fields >> field); ++i) {
    if (i == 3 && (field == "Z" || field == "X")) return "";  // it has ended
  }
  return field;
}

/// "pid 7 on host since 2026-…Z token 0123… machine <boot>/<ns> start <ticks> [renewed]"
struct Owner {
  std::int64_t pid = 0;
  std::string words;  ///< "pid 7 on host since …", for people
  std::string machine;
  std::string start;
  bool renewed = false;
};

/// Absent: nobody's, or no record (of an agent of an older version there is only the flock).
std::optional<Owner> owner_of(const std::string& record) {
  std::istringstream words(record);
  std::string word;
  std::string value;
  Owner owner;
  bool has_token = false;
  while (words >> word) {
    if (word == "renewed") {
      owner.renewed = true;
      continue;
    }
    if (!(words >> value)) break;
    if (word == "pid") std::from_chars(value.data(), value.data() + value.size(), owner.pid);
    if (word == "token") has_token = true;
    if (word == "machine") owner.machine = value;
    if (word == "start") owner.start = value;
  }
  if (!has_token || owner.pid <= 0) return std::nullopt;
  owner.words = printable(record.substr(0, record.find(" token ")));
  return owner;
}

bool is_dead(const Owner& owner) {
  return owner.machine == this_machine() && start_of(owner.pid) != owner.start;
}

std::string read_record(int fd) {
  std::array<char, 512> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string line(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  line.resize(std::min(line.size(), line.find('\n')));
  return line;
}

/// Of the file that has the name now.
Result<std::string> record_at(const std::string& path) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0) return errno_error("lock", path, errno);
  return read_record(fd.get());
}

Status write_record(int fd, const std::string& path, const std::string& record) {
  const std::string text = record + "\n";
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return errno_error("write", path, errno);
  }
  return {};
}

std::string our_record(bool renewed) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string name = printable(host.data());
  const std::int64_t pid = ::getpid();
  return "pid " + std::to_string(pid) + " on " + (name.empty() ? "-" : name) + " since " +
         format_utc(SystemClock().wall_now()) + " token " + random_token() + " machine " +
         this_machine() + " start " + start_of(pid) + (renewed ? " renewed" : "");
}

/// The age of a record by the clock of the file system that holds it: that of a file made now.
std::optional<std::chrono::nanoseconds> age_of(const std::string& path, int probe) {
  struct stat record{};
  struct stat now{};
  if (::stat(path.c_str(), &record) != 0 || ::fstat(probe, &now) != 0) return std::nullopt;
  return std::chrono::seconds(now.st_mtim.tv_sec - record.st_mtim.tv_sec) +
         std::chrono::nanoseconds(now.st_mtim.tv_nsec - record.st_mtim.tv_nsec);
}

Error owned_by(const std::string& path, const std::string& words) {
  return make_error(ErrorCode::kUnavailable,
                    path + ": another evalcar works here: " + (words.empty() ? "somebody" : words));
}

/// A file beside `path` that goes with the object, unless it was renamed.
class Beside {
 public:
  static Result<Beside> create(const std::string& path) {
    // As those of write_file_atomically, so that one that a kill leaves is removed like those.
    std::string name =
        join_path(parent_path(path), "." + base_name(path) + ".tmp." + std::to_string(::getpid()) +
                                         "." + std::to_string(std::random_device()()));
    OwnedFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (fd.get() < 0) return errno_error("lock", name, errno);
    return Beside(std::move(name), std::move(fd));
  }
  Beside(Beside&& other) noexcept
      : name_(std::exchange(other.name_, "")), fd_(std::move(other.fd_)) {}
  Beside& operator=(Beside&&) = delete;
  ~Beside() {
    if (!name_.empty()) (void)::unlink(name_.c_str());
  }
  int fd() const { return fd_.get(); }
  OwnedFd release_fd() { return std::move(fd_); }
  Status rename_to(const std::string& path) {
    if (::rename(name_.c_str(), path.c_str()) != 0) return errno_error("rename", name_, errno);
    name_.clear();
    return {};
  }

 private:
  Beside(std::string name, OwnedFd fd) : name_(std::move(name)), fd_(std::move(fd)) {}
  std::string name_;
  OwnedFd fd_;
};

enum class Flock { kTaken, kHeld, kNone };

/// kNone: this file system has no such locks.
Result<Flock> lock_file(int fd, const std::string& path) {
  int error = 0;
  (void)outlast_dying_holder([&] {
    error = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    return error != EWOULDBLOCK;
  });
  if (error == 0) return Flock::kTaken;
  if (error == EWOULDBLOCK) return Flock::kHeld;
  if (error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL) {
    return Flock::kNone;
  }
  return errno_error("lock", path, error);
}

/// Whether a record without a lock of the kernel stands in the way; `living`: its owner may wake
/// up.
Result<bool> still_owns(const std::string& path, const Owner& owner, bool& living) {
  if (is_dead(owner)) return false;
  living = true;
  EVALCAR_ASSIGN_OR_RETURN(const Beside probe, Beside::create(path));
  const auto age = age_of(path, probe.fd());
  return !age.has_value() || *age < OutputLock::kLease;
}

}  // namespace

Result<OutputLock> OutputLock::take(const std::string& path, bool shared) {
  OwnedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (fd.get() < 0) return errno_error("lock", path, errno);
  EVALCAR_ASSIGN_OR_RETURN(const Flock locked, lock_file(fd.get(), path));
  const std::string before = read_record(fd.get());
  const std::optional<Owner> owner = owner_of(before);
  if (locked == Flock::kHeld) {
    return owned_by(path, owner.has_value() ? owner->words : printable(before));
  }
  bool living = false;
  // With the lock in hand only a record that was made without one, or on another machine, counts.
  const bool asked = owner.has_value() && (locked == Flock::kNone || owner->renewed);
  if (asked) {
    EVALCAR_ASSIGN_OR_RETURN(const bool owns, still_owns(path, *owner, living));
    if (owns) return owned_by(path, owner->words);
  }
  const bool renewed = shared || locked == Flock::kNone;
  const std::string record = our_record(renewed);
  bool written = true;
  if (locked == Flock::kTaken) {
    written =
        write_record(fd.get(), path, record).has_value();  // a full disk: it is held all the same
  } else {
    EVALCAR_ASSIGN_OR_RETURN(Beside made, Beside::create(path));
    EVALCAR_RETURN_IF_ERROR(write_record(made.fd(), path, record));
    EVALCAR_RETURN_IF_ERROR(made.rename_to(path));
    fd = made.release_fd();
  }
  std::string on_disk = written ? record : read_record(fd.get());
  OutputLock lock(path, std::move(fd), std::move(on_disk));
  lock.renewed_ = renewed;
  lock.replaced_living_ = living;
  EVALCAR_RETURN_IF_ERROR(lock.check());  // two may have come at once: the last one has it
  return lock;
}

OutputLock::~OutputLock() {
  if (fd_.get() < 0) return;
  if (check().has_value()) (void)!::ftruncate(fd_.get(), 0);
}

Status OutputLock::check() const {
  EVALCAR_ASSIGN_OR_RETURN(const std::string now, record_at(path_));
  if (now == record_) return {};
  const std::optional<Owner> owner = owner_of(now);
  return make_error(ErrorCode::kUnavailable,
                    path_ + ": this evalcar was taken for dead, and another one works here now: " +
                        (owner.has_value() ? owner->words : std::string("somebody")));
}

void OutputLock::renew() const { (void)::futimens(fd_.get(), nullptr); }

}  // namespace evalcar::run
