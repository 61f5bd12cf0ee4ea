// How one output directory is to be watched.
#pragma once

#include <chrono>
#include <string>

namespace evalcar::watch {

struct WatchOptions {
  std::string output_dir;
  std::string pattern = "checkpoint-{step}";
  std::string end_marker;
  /// evaluate.base_model: what a checkpoint without a configuration is evaluated with.
  std::string base_model;
  std::chrono::milliseconds poll_interval{10'000};
  std::chrono::milliseconds settle_time{30'000};
  /// At most one look in this time, however many hints come; longer where a look takes long.
  std::chrono::milliseconds shortest_pause{50};
  /// A step takes little longer: what is not looked at then is in the next one.
  std::chrono::milliseconds longest_step{250};
};

}  // namespace evalcar::watch
