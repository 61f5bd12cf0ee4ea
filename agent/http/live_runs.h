// The runs of this agent for people and for Prometheus: what it says of itself, from the board, and
// the numbers, from the databases, on read-only connections of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/page/page_data.h"
#include "agent/page/sample_list.h"
#include "agent/publish/live_board.h"
#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::http {

/// Not thread-safe, but for database_of(): the worker's thread. A run is asked for by its name; ""
/// is the first one, and where the output directory was made anew since, its run of now is meant.
/// Each call may fail as Reader::open does; kNotFound: there is no such run (now).
class LiveRuns {
 public:
  /// Both must outlive it.
  LiveRuns(const Clock& clock, const publish::LiveBoard& board) : clock_(clock), board_(board) {}

  /// Prometheus' text of all of them; a database that cannot be read fails alone.
  std::string prometheus();
  /// What the page shows (page::LiveDocument); `since`: the version that the asker has. While no
  /// run is served at all, which is how every agent begins: {"run": "", "runs": []}.
  Result<std::string> page_data(const std::string& run, const std::string& since);
  struct News {
    std::string run;  ///< that is told of
    std::string json;
  };
  /// The same without the numbers.
  Result<News> page_news(const std::string& run);
  /// The news of the runs that are listened to, by the names under which they are. Of one that is
  /// served no more: {"run", "gone": true, "runs"}.
  std::vector<News> news_for(const std::vector<std::string>& topics);
  Result<std::string> samples(const page::SampleQuery& query, const page::SamplePictures& pictures);
  /// Thread-safe: the board knows it.
  Result<std::string> database_of(const std::string& run) const;

 private:
  Result<publish::LiveDirectory> find(const std::string& run) const;
  /// A connection, and what is kept of what it read.
  struct Database {
    state::Reader reader;
    std::map<std::string, page::LiveDocument> documents = {};  ///< by run; that of now alone
  };
  Result<std::string> document(const publish::LiveDirectory& directory, bool with_metrics,
                               const std::string& since);
  std::vector<std::string> names() const;
  /// A connection is opened once, and anew after a question to it failed.
  Result<Database*> open(const std::string& database);
  /// Says it once, until the database can be read again, and drops its connection.
  void cannot_read(const std::string& database, const Error& why);
  /// What is kept of databases that the board does not name any more goes.
  void forget_others(const std::vector<publish::LiveDirectory>& directories);

  const Clock& clock_;
  const publish::LiveBoard& board_;
  std::map<std::string, Database> databases_;    ///< by their files
  std::map<std::string, std::string> troubles_;  ///< that were said, by database
};

}  // namespace evalcar::http
