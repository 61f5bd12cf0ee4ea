// What `evalcar doctor` looks at. Each check is independent of the others, changes nothing that
// stays, and ends within seconds; what it finds is one line, and another one says how to mend it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config/config.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::cli {

/// One line of the report.
struct Finding {
  /// kWarning: it works, and there is something to know. kProblem: it will not work.
  enum class Level { kOk, kWarning, kProblem };
  std::string name;
  Level level = Level::kOk;
  std::string text;
  std::string mend = {};  ///< how to mend it; "" where there is nothing to mend
};
using Findings = std::vector<Finding>;

/// This machine, whatever is evaluated: where the database is to be (store.path, else the default),
/// inotify, clock, rank variables.
Findings check_machine(FileSystem& files, const Clock& clock, const config::StoreSettings& store);

/// An output directory: file system, free space, permissions, hard links (tried), the trainer's
/// save_steps against evaluate.eval_steps.
Findings check_output_directory(FileSystem& files, const config::Settings& settings,
                                const std::string& dir);

/// The evaluator's program and what it can run on: libtorch, NCCL, driver, the GPUs that
/// evaluate.device and evaluate.num_gpus name. The others are told, not judged.
Findings check_evaluator(const FileSystem& files, const Clock& clock,
                         const config::Settings& settings);

/// Task names, and whether their data can be read (asked of the evaluator's program).
Findings check_tasks(const FileSystem& files, const Clock& clock, const config::Settings& settings);

/// Is it whole, and what of it can be evaluated?
Findings check_checkpoint(const FileSystem& files, const config::Settings& settings,
                          const std::string& dir);

/// The HTTP API as configured: whether it would begin, and who may ask what of it. Nothing where it
/// is off.
Findings check_api(const FileSystem& files, const config::ServerSettings& settings);

/// Is a server there, and which? `url`: "http://host:port".
Findings check_server(const std::string& url);

// ---- what they share; pure

/// What a GPU of the evaluator's report is good for. `capability`: 90 for 9.0.
struct GpuFacts {
  std::string device;
  std::string name;
  std::int64_t capability = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::int64_t> users;  ///< processes that compute on it
  std::optional<std::uint64_t> free_bytes;
  bool lost = false;
};
Findings judge_gpu(const GpuFacts& gpu, bool share_gpu);

/// Whether an evaluator with evaluate.device = `device` runs on `gpu` ("cuda:1"): on the one that
/// is named (the first of "auto" and "cuda") and, with more than one, on those behind it.
bool runs_on(const std::string& device, std::int64_t num_gpus, const std::string& gpu);

/// Whether the trainer's saves meet evaluate.eval_steps. `save_steps`: 0 = not known.
Finding judge_steps(std::int64_t eval_steps, std::int64_t save_steps);

/// "http://127.0.0.1:8000/x" → host, port ("80" if none), nothing of the path. kInvalidArgument for
/// anything else.
struct HostPort {
  std::string host;
  std::string port;
};
Result<HostPort> parse_server_url(std::string_view url);

/// The status code and the body of an HTTP/1.x answer, chunked or not. kCorruption if it is none.
struct HttpAnswer {
  int status = 0;
  std::string body;
};
Result<HttpAnswer> parse_http_answer(std::string_view text);

}  // namespace evalcar::cli
