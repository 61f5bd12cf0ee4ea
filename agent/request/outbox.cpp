#include "agent/request/outbox.h"

#include <unistd.h>

#include <random>

namespace evalcar::request {
namespace {

constexpr std::chrono::milliseconds kPause{20};

std::string new_stem() {
  std::random_device device;
  const std::uint64_t number = (std::uint64_t{device()} << 32U) | device();
  return std::to_string(::getpid()) + "-" + std::to_string(number);
}

std::string seconds_text(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

/// One request on its way.
class Letter {
 public:
  Letter(FileSystem& files, const Clock& clock, std::string stem, const AskOptions& options)
      : files_(files), clock_(clock), stem_(std::move(stem)), options_(options) {}

  /// The answer, if it comes in time and while there is somebody to give it.
  Result<std::optional<Answer>> wait() {
    const MonotonicTime deadline = clock_.monotonic_now() + options_.patience;
    while (true) {
      // In this order: an answer given before the end is found after it.
      const bool last = clock_.monotonic_now() >= deadline || !options_.agent_there();
      const auto text = read_file(files_, path(kAnswerEnding), kMaxBytes);
      if (text.has_value()) {
        (void)files_.remove_file(path(kAnswerEnding));  // else the agent removes it later
        EVALCAR_ASSIGN_OR_RETURN(Answer answer, decode_answer(*text));
        return std::optional(std::move(answer));
      }
      if (text.error().code != ErrorCode::kNotFound) return text.error();
      if (last) return std::optional<Answer>();
      options_.pause(kPause);
    }
  }

  /// False: it was taken.
  Result<bool> withdraw() {
    const Status removed = files_.remove_file(path(kRequestEnding));
    if (removed.has_value()) return true;
    if (removed.error().code == ErrorCode::kNotFound) return false;
    return removed.error();
  }

  std::string path(std::string_view ending) const { return stem_ + std::string(ending); }

 private:
  FileSystem& files_;
  const Clock& clock_;
  std::string stem_;
  const AskOptions& options_;
};

}  // namespace

Result<Answer> ask(FileSystem& files, const Clock& clock, const std::string& folder,
                   const Request& request, const AskOptions& options) {
  if (!files.info_followed(folder).has_value()) {
    return make_error(ErrorCode::kUnavailable,
                      folder +
                          ": is not there: whoever holds the database takes no requests (an older "
                          "version?); stop it, and ask again");
  }
  Letter letter(files, clock, join_path(folder, new_stem()), options);
  const Status written = write_file_atomically(files, letter.path(kRequestEnding), encode(request));
  if (!written.has_value()) {
    Error error = written.error();
    error.message += "; run the command as the user that runs the agent, or as root";
    return error;
  }
  EVALCAR_ASSIGN_OR_RETURN(auto answer, letter.wait());
  if (answer.has_value()) return *std::move(answer);
  EVALCAR_ASSIGN_OR_RETURN(const bool withdrawn, letter.withdraw());
  if (withdrawn && !options.agent_there()) {
    return make_error(ErrorCode::kNotFound, "the agent ended before it took the request up");
  }
  if (withdrawn) {
    return make_error(ErrorCode::kUnavailable, "the agent did not take the request up within " +
                                                   seconds_text(options.patience) +
                                                   "; it was withdrawn, and nothing has changed");
  }
  EVALCAR_ASSIGN_OR_RETURN(answer, letter.wait());
  if (answer.has_value()) return *std::move(answer);
  return make_error(ErrorCode::kUnavailable,
                    "the agent took the request up but has not answered; `evalcar status` tells "
                    "what became of it (if the agent ended, its next start does it)");
}

}  // namespace evalcar::request
