// Posts results in their order, in a thread of its own, until the receiver has taken each of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/webhook/post.h"

namespace evalcar::webhook {

/// One result: a line of metrics.jsonl.
struct Parcel {
  std::int64_t seq = 0;
  std::string run;
  std::string body;
};

struct CourierOptions {
  std::string url;
  std::string secret;                           ///< "": nothing is signed
  std::string version;                          ///< of the program, for User-Agent
  std::chrono::milliseconds first_pause{1000};  ///< after a failure; doubles up to `longest_pause`
  std::chrono::milliseconds longest_pause{300000};
  std::int64_t tries_of_refused =
      3;  ///< a body that the receiver calls wrong is given up after so many
};

/// Thread-safe. What it holds is bounded (kMostParcels); whoever has more asks again later. Its end
/// gives up what is under way within about a second, and nothing is lost by that: what was not
/// `done` is handed in again after the next start.
class Courier {
 public:
  static constexpr std::size_t kMostParcels = 16;

  Courier(CourierOptions options, std::unique_ptr<Poster> poster);
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Nothing is posted after it; `done` is final. Not from several threads at once.
  void stop();
  /// False: it holds as many as it may.
  bool take(Parcel parcel);
  /// The largest seq that is done with: taken by the receiver, or given up (which is in `trouble`).
  std::optional<std::int64_t> done() const;
  /// Nothing is left to post.
  bool idle() const;
  /// Why the oldest is not delivered yet, or that one was given up; "" while all is well.
  std::string trouble() const;
  /// Failed tries in a row.
  std::int64_t failures() const;

 private:
  void run(const std::stop_token& stop);
  void deliver(const Parcel& parcel, const std::stop_token& stop);
  void finish(std::int64_t seq, const std::string& trouble);

  const CourierOptions options_;
  const std::unique_ptr<Poster> poster_;  ///< the thread's alone
  mutable std::mutex mutex_;              ///< guards all below, but the thread
  std::condition_variable_any changed_;
  std::deque<Parcel> parcels_;  ///< the first one is under way
  std::optional<std::int64_t> done_;
  std::string trouble_;
  std::int64_t failures_ = 0;
  std::jthread thread_;  ///< last: it uses all of the above
};

}  // namespace evalcar::webhook
