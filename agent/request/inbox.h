// The agent's side of the requests: takes what commands left in the folder, and answers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/request/request.h"
#include "agent/watch/notifier.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::request {

/// Not thread-safe. Only the process that holds the database may have one.
class Inbox {
 public:
  using CarryOut = std::function<Answer(const Request&)>;

  /// `files` and `clock` must outlive it. The folder is made at the first step().
  Inbox(FileSystem& files, const Clock& clock, std::unique_ptr<watch::Notifier> notifier,
        std::string folder);

  /// Carries out and answers what lies there, if a hint or time says to look; at most some dozens a
  /// call. What is no request is set aside, with a line in the log, and answered as failed. Returns
  /// how many were carried out. Trouble with the folder is only logged.
  std::size_t step(const CarryOut& carry_out);
  /// How long until step() has something to do without a hint.
  std::chrono::milliseconds until_due() const;
  /// Readable when there is a hint; may be -1.
  int descriptor() const { return notifier_->descriptor(); }

 private:
  bool look_due();
  Status look(const CarryOut& carry_out, std::size_t& carried_out);
  Status take(const std::string& name, const CarryOut& carry_out, std::size_t& carried_out);
  Status reject(const std::string& name, const std::string& why);
  Status answer(const std::string& stem, const Answer& answer);
  void tidy(const std::vector<DirectoryEntry>& entries);

  FileSystem& files_;
  const Clock& clock_;
  std::unique_ptr<watch::Notifier> notifier_;
  std::string folder_;
  bool hinted_ = true;
  bool watched_ = false;
  MonotonicTime looked_at_{};
  std::string trouble_;
};

}  // namespace evalcar::request
