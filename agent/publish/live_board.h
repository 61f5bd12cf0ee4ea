// What the agent says of itself while it runs, for readers in other threads. The loop writes it
// with each heartbeat; nobody who reads it ever holds the loop up.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/publish/status.h"
#include "store/base/guarded.h"

namespace evalcar::publish {

/// One output directory, as of its last heartbeat.
struct LiveDirectory {
  std::string output_dir;
  std::string database;
  std::string run;  ///< "" while there is none
  AgentFacts facts;
};

/// Thread-safe.
class LiveBoard {
 public:
  /// The loop's side.
  void tell(LiveDirectory now);
  /// Another agent begins, which has these directories alone; what it says of them comes later.
  void keep_only(const std::vector<std::string>& output_dirs);

  /// By output directory.
  std::vector<LiveDirectory> directories() const;
  /// What stands in the way of any of them, each said once; "": nothing.
  std::string hindrance() const;
  /// Called, from the loop's thread, after something was told; null: nobody is.
  void on_news(std::function<void()> call);

 private:
  struct State {
    std::map<std::string, LiveDirectory> directories;
    std::function<void()> on_news;
  };
  Guarded<State> state_;
};

}  // namespace evalcar::publish
