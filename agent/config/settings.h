// Everything that can be configured, typed. One struct a section of the TOML file; the defaults are
// those of the table in keys.cpp (the values here are only starting points that the table
// overwrites).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/units.h"

namespace evalcar::config {

struct WatchSettings {
  std::vector<std::string> output_dir;
  Duration poll_interval{};
  Duration settle_time{};
  std::string pattern;  ///< one "{step}"
  std::string end_marker;
  std::optional<Duration> exit_when_quiet;
  std::string exit_marker;         ///< a file in the output directory, or absolute; empty: none
  std::int64_t exit_with_pid = 0;  ///< 0: none
  bool exit_at_max_steps = false;
  std::string snapshot_dir;  ///< absolute; empty: none
};

enum class Policy { kEvery, kLatest, kNewestFirst };
/// Which checkpoints are evaluated at all.
enum class EvalStrategy {
  kSteps,  ///< those that eval_steps divides
  kEpoch,  ///< the one nearest to the end of each epoch
  kNo,     ///< none but those that a person asks for
};

/// Of a task that is measured more seldom than the others.
struct TaskCadence {
  std::int64_t eval_steps = 0;  ///< 0 = every checkpoint that is evaluated
  std::int64_t every_nth = 1;   ///< of those that are evaluated the first, and each n-th after it
  auto operator<=>(const TaskCadence&) const = default;
};

struct EvaluateSettings {
  std::vector<std::string> tasks;
  std::string data_dir;
  std::string tasks_dir;
  std::string device;
  std::string dtype;
  std::int64_t batch_size = 0;  ///< 0 = auto
  std::optional<double> limit;  ///< >= 1 a count, below a fraction
  std::optional<std::int64_t> max_new_tokens;
  std::vector<std::string> weights;  ///< "regular", "ema"
  std::int64_t average_last = 0;     ///< 0 = off; else how many checkpoints an average is of
  std::int64_t max_pixels = 0;
  std::int64_t min_pixels = 0;
  std::string attn_implementation;
  double gpu_memory_utilization = 0;
  bool share_gpu = false;
  bool keep_resident = true;
  std::optional<Duration> resident_idle;  ///< the evaluator ends after so long without work
  bool prefetch = true;
  bool drafts = true;
  std::string compat;
  Policy policy = Policy::kNewestFirst;
  EvalStrategy eval_strategy = EvalStrategy::kSteps;
  std::map<std::string, std::int64_t> task_eval_steps;  ///< by task; others: every one
  std::map<std::string, std::int64_t> task_every_nth;
  std::vector<double> anytime;  ///< fractions after which an interim score is told, ascending
  bool preempt = false;         ///< a newer checkpoint goes first once there is such a score
  std::int64_t every_nth = 1;
  std::int64_t eval_steps = 0;  ///< 0 = every checkpoint; else steps that it divides, and the last
  std::int64_t offset = 0;
  bool max_pixels_set = false;  ///< by somebody, and to the default
  bool min_pixels_set = false;
  std::optional<std::int64_t> num_fewshot;
  std::string gen_kwargs;
  std::int64_t num_gpus = 1;
  std::int64_t bootstrap_iters = 0;
  std::string base_model;
  std::int64_t seed = 0;
  bool log_samples = true;
};

struct StoreSettings {
  std::string path;  ///< empty: below the state directory
  bool allow_network_file_system = false;
};

enum class LinkInCheckpoint { kAuto, kNever, kAlways };

struct PublishSettings {
  std::string dir;        ///< empty: <output_dir>/_evalcar
  std::string file_mode;  ///< "0644"
  LinkInCheckpoint link_in_checkpoint = LinkInCheckpoint::kAuto;
  std::int64_t keep_best = 0;
  std::string metric_for_best_model;
  std::optional<bool> greater_is_better;  ///< absent: what the metric says
  bool tensorboard = true;
  bool aliases = false;
  std::string webhook_url;          ///< empty: nothing is posted
  std::string webhook_secret_file;  ///< empty: what is posted is not signed
};

struct ServerSettings {
  std::string listen;       ///< "127.0.0.1:8000"; empty: off
  std::string unix_socket;  ///< a path; empty: off
  std::string token_file;
  std::vector<std::string> allow_from;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_roots;
  Duration idle_timeout{};
  bool operator==(const ServerSettings&) const = default;
};

struct LimitSettings {
  std::optional<std::uint64_t> lease_budget;  ///< bytes; absent = unlimited above min_free
  std::optional<std::uint64_t> min_free;      ///< bytes; absent = 2 x the newest whole checkpoint
  std::uint64_t picture_cache = 0;            ///< bytes; 0 = none
  std::uint64_t preparation_cache = 0;        ///< bytes; 0 = none
  std::uint64_t encoded_pictures = 0;         ///< bytes of memory; 0 = none
  std::uint64_t sample_pictures = 0;          ///< bytes; 0 = none
  std::int64_t attempts = 3;
  Duration retry_delay{};  ///< before the second attempt; doubles each time
  /// "heartbeat", "stuck", "starting", "loading", "preparing", "evaluating", "scoring".
  std::map<std::string, Duration> stage_timeouts;
  // Of the unit; absent and empty: its own. In systemd's words: "infinity" or bytes.
  std::optional<std::int64_t> cpu_weight;
  std::optional<std::int64_t> io_weight;
  std::string memory_max;
};

struct Settings {
  WatchSettings watch;
  EvaluateSettings evaluate;
  StoreSettings store;
  PublishSettings publish;
  ServerSettings server;
  LimitSettings limits;
};

}  // namespace evalcar::config
