#include <sys/inotify.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "agent/cli/doctor.h"
#include "agent/supervise/child_environment.h"
#include "agent/supervise/child_process.h"
#include "store/base/file_system_kind.h"
#include "store/state/location.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;

constexpr std::uint64_t kLeastStateBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kFewWatches = 1024;

std::optional<std::uint64_t> number_in(const FileSystem& files, const std::string& path) {
  const auto text = read_file(files, path, 64);
  if (!text.has_value()) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  return error == std::errc() && end != text->data() ? std::optional(number) : std::nullopt;
}

Finding check_state_directory(FileSystem& files, const config::StoreSettings& store) {
  const std::string dir = store.path.empty() ? state::state_directory() : parent_path(store.path);
  const std::string mend =
      "set store.path to a file on a local disk that this user may write, e.g. below "
      "/var/lib/evalcar";
  if (const Status made = make_directories(files, dir); !made.has_value()) {
    return {"state directory", Level::kProblem, made.error().message, mend};
  }
  if (::access(dir.c_str(), W_OK) != 0) {
    return {"state directory", Level::kProblem, errno_error("write", dir, errno).message, mend};
  }
  const FileSystemKind kind = file_system_kind(files.file_system_type(dir).value_or(0));
  if (!kind.can_hold_database()) {  // as the store refuses it
    const std::string text = dir + ": is on " + kind.name + ", where SQLite can lose data";
    const bool forced = store.allow_network_file_system;
    return {"state directory", forced ? Level::kWarning : Level::kProblem,
            text + (forced ? "; store.allow_network_file_system allows it" : ""), mend};
  }
  const std::uint64_t free = files.free_bytes(dir).value_or(0);
  const std::string text = dir + ": " + config::format_bytes(free) + " free on " + kind.name;
  if (free < kLeastStateBytes) {
    return {"state directory", Level::kProblem, text, "make room, or " + mend};
  }
  return {"state directory", Level::kOk, text};
}

Finding check_inotify(const FileSystem& files) {
  const std::string polling = "; without it changes are found by polling (watch.poll_interval)";
  const supervise::OwnedFd fd(::inotify_init1(IN_CLOEXEC));
  if (fd.get() < 0) {
    return {"inotify", Level::kWarning, errno_error("start", "inotify", errno).message + polling,
            "raise fs.inotify.max_user_instances (sysctl)"};
  }
  const std::string folder = "/proc/sys/fs/inotify/";
  std::string text;
  for (const char* const name : {"max_user_watches", "max_user_instances", "max_queued_events"}) {
    const auto number = number_in(files, folder + name);
    text += (text.empty() ? "" : ", ") + std::string(name) + " " +
            (number.has_value() ? std::to_string(*number) : "not known");
  }
  if (number_in(files, folder + "max_user_watches").value_or(kFewWatches) < kFewWatches) {
    return {"inotify", Level::kWarning, text + polling,
            "raise it: sysctl fs.inotify.max_user_watches=524288"};
  }
  return {"inotify", Level::kOk, text};
}

/// The order of checkpoints and all time-outs go by the monotonic clock; the wall clock is for
/// dates in files, and for `next_try_at`.
Finding check_clock(const Clock& clock) {
  const std::string now = format_utc(clock.wall_now());
  const std::string mend = "start a time service (systemd-timesyncd, chrony)";
  // Older than this program: it was never set.
  if (now < "2026") {
    return {"clock", Level::kWarning, now + ": is this the time? Dates in files will be wrong",
            mend};
  }
  timex facts{};
  const int state = ::adjtimex(&facts);
  if (state == TIME_ERROR) {
    return {"clock", Level::kWarning, now + ": not synchronised, as the kernel says", mend};
  }
  return {"clock", Level::kOk, now + (state < 0 ? "" : ", synchronised")};
}

/// "RANK=3": numbers and where the first rank is; of others the name alone, since a launcher's
/// variables hold tokens, too.
std::string without_secrets(const std::string& variable) {
  const std::size_t equals = variable.find('=');
  if (equals == std::string::npos) return variable;
  const bool place = variable.starts_with("MASTER_ADDR=") || variable.starts_with("MASTER_PORT=");
  const bool number = variable.size() > equals + 1 && variable.size() - equals <= 8 &&
                      variable.find_first_not_of("0123456789", equals + 1) == std::string::npos;
  return place || number ? variable : variable.substr(0, equals);
}

Finding check_rank_variables() {
  std::string text;
  for (const std::string& variable : supervise::rank_variables(::environ)) {
    text += (text.empty() ? "" : ", ") + without_secrets(variable);
  }
  const std::string visible = [] {
    const char* const told = std::getenv("CUDA_VISIBLE_DEVICES");
    return told == nullptr ? std::string("CUDA_VISIBLE_DEVICES is not set")
                           : "CUDA_VISIBLE_DEVICES is \"" + std::string(told) + "\"";
  }();
  if (text.empty()) return {"rank variables", Level::kOk, "none; " + visible};
  return {"rank variables", Level::kOk,
          text + " (a launcher's, not told to the evaluator); " + visible};
}

}  // namespace

Findings check_machine(FileSystem& files, const Clock& clock, const config::StoreSettings& store) {
  return {check_state_directory(files, store), check_inotify(files), check_clock(clock),
          check_rank_variables()};
}

}  // namespace evalcar::cli
