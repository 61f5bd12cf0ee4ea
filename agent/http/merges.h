// POST /merge: each merge in a child process, one at a time, in a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "agent/http/message.h"
#include "agent/http/places.h"

namespace evalcar::http {

struct MergePlan {
  std::string checkpoint;  ///< or a run folder, whose newest complete checkpoint is meant
  std::string output_dir;  ///< "": our own place beside it
  std::string kind = "regular";
};

/// MergeRequest of lmms-eval's server; or why it cannot be carried out.
std::variant<MergePlan, Response> read_merge_request(const Places& places,
                                                     const nlohmann::ordered_json& body);

/// Answers when the merge has ended. Thread-safe. Ending it kills the child that runs; what it had
/// not finished is removed by the next merge to that place.
class Merges {
 public:
  /// `command`: reads one JSON line on descriptor 3 and answers there (cli/merge_request).
  explicit Merges(std::vector<std::string> command);
  ~Merges();
  Merges(const Merges&) = delete;
  Merges& operator=(const Merges&) = delete;
  /// 429 where four wait already.
  void begin(MergePlan plan, Respond respond);

 private:
  void work();
  Response run(const MergePlan& plan);

  std::vector<std::string> command_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<MergePlan, Respond>> waiting_;
  bool stopping_ = false;
  int stop_event_ = -1;
  std::thread thread_;
};

}  // namespace evalcar::http
