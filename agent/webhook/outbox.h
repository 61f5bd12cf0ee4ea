// Which results are still to be posted. The database has every line with its seq, so all that is
// remembered is how far the receiver is: one small file beside the database. Kill the process
// anywhere: at worst the last result is posted twice, under the same X-Evalcar-Delivery.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/webhook/courier.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/state/published_lines.h"

namespace evalcar::webhook {

/// Not thread-safe: the store's thread. Never waits for the receiver.
class Outbox {
 public:
  /// Goes on from `<database>.webhook.json`. Where that is not there, or is of another URL: from
  /// what is published after the first step(), since nobody wants years of results at once. `files`
  /// must outlive it.
  static Result<std::unique_ptr<Outbox>> open(FileSystem& files, const std::string& database,
                                              CourierOptions options,
                                              std::unique_ptr<Poster> poster);

  /// Notes what was taken in its last moment.
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Notes what was delivered and hands out what is next, while `run_id` is the current run. An
  /// error is of the moment. The first time when the database knows what was published before (a
  /// lost one is filled from the files).
  Status step(std::int64_t run_id);
  bool begun() const { return begun_; }
  /// As of the last step(): results wait to be taken by the receiver.
  bool pending() const { return handed_out_ > delivered_; }
  std::string trouble() const { return courier_.trouble(); }
  std::int64_t failures() const { return courier_.failures(); }

 private:
  Outbox(FileSystem& files, state::PublishedLines lines, std::string path, CourierOptions options,
         std::unique_ptr<Poster> poster);
  Status begin();
  Status note_delivered();
  Status remember(std::int64_t seq);

  FileSystem& files_;
  state::PublishedLines lines_;
  std::string path_;
  std::string url_sha256_;
  bool begun_ = false;
  std::int64_t delivered_ = 0;  ///< as the file says
  std::int64_t handed_out_ = 0;
  Courier courier_;
};

}  // namespace evalcar::webhook
