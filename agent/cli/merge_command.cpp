#include "agent/cli/merge_command.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <ostream>
#include <thread>
#include <utility>

#include "agent/cli/exit_code.h"
#include "agent/cli/merge_sources.h"
#include "agent/cli/transfer_progress.h"
#include "agent/cli/usage_error.h"
#include "store/base/text.h"
#include "store/checkpoint/convert.h"
#include "store/checkpoint/merge.h"

namespace evalcar::cli {
namespace {

using checkpoint::DType;
using checkpoint::MergeRequest;

std::atomic<bool> stop_requested{false};

/// SIGINT, SIGQUIT, SIGTERM and SIGHUP (a closed terminal) set stop_requested as long as this
/// lives; a SIGHUP that is ignored (nohup) stays ignored. Nobody who reads the progress any more
/// (SIGPIPE) and a limit for files (SIGXFSZ) are errors of a write, and end nothing half way.
class StopSignals {
 public:
  StopSignals() {
    stop_requested = false;
    struct sigaction action = {};
    action.sa_handler = [](int) { stop_requested = true; };
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &old_[i]);
      if (kSignals[i] == SIGHUP && old_[i].sa_handler == SIG_IGN) {
        ::sigaction(SIGHUP, &old_[i], nullptr);
      }
    }
    action.sa_handler = SIG_IGN;
    for (std::size_t i = 0; i < kErrors.size(); ++i)
      ::sigaction(kErrors[i], &action, &old_errors_[i]);
  }
  ~StopSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
    for (std::size_t i = 0; i < kErrors.size(); ++i)
      ::sigaction(kErrors[i], &old_errors_[i], nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  static constexpr std::array<int, 2> kErrors = {SIGPIPE, SIGXFSZ};
  std::array<struct sigaction, 4> old_ = {};
  std::array<struct sigaction, 2> old_errors_ = {};
};

int exit_code_of_merge(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return kExitUsage;
    case ErrorCode::kUnavailable:
      return kExitNotReady;
    default:
      return kExitFailed;
  }
}

/// "5GB", "500MiB", "1.5GB", "1000": as in transformers, GB is 10^9 bytes and GiB is 2^30.
Result<std::uint64_t> parse_size(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 8> kUnits = {{{"KIB", 1024.0},
                                           {"MIB", 1048576.0},
                                           {"GIB", 1073741824.0},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"B", 1.0},
                                           {"", 1.0}}};
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  double number = 0;
  const auto [end, error] = std::from_chars(upper.data(), upper.data() + upper.size(), number);
  const std::string_view unit =
      std::string_view(upper).substr(static_cast<std::size_t>(end - upper.data()));
  for (const Unit& known : kUnits) {
    if (error != std::errc() || unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (bytes >= 1 && bytes < 1e18) return static_cast<std::uint64_t>(bytes);
  }
  return usage_error("--max-shard-size " + text + ": expected a size such as 5GB or 500MiB");
}

Result<std::optional<DType>> parse_dtype(const std::string& name) {
  if (name == "keep") return std::optional<DType>();
  if (name == "bfloat16" || name == "bf16") return std::optional(DType::kBFloat16);
  if (name == "float32" || name == "fp32") return std::optional(DType::kFloat32);
  if (name == "float16" || name == "fp16") return std::optional(DType::kFloat16);
  return usage_error("--dtype " + name + ": expected bfloat16, float16, float32 or keep");
}

Result<MergeRequest> make_request(const MergeOptions& options, const FileSystem& files,
                                  std::ostream& err) {
  MergeRequest request;
  EVALCAR_ASSIGN_OR_RETURN(request.dtype, parse_dtype(options.dtype));
  EVALCAR_ASSIGN_OR_RETURN(request.max_shard_bytes, parse_size(options.max_shard_size));
  if (!options.average && !options.average_weights.empty()) {
    return usage_error("--merge-weights: needs --merge");
  }
  EVALCAR_ASSIGN_OR_RETURN(MergeSources sources, find_merge_sources(options, files, err));
  request.plans = std::move(sources.plans);
  request.source_dirs = std::move(sources.folders);
  request.side_file_fallback_dir = std::move(sources.model_folder);
  request.weights = options.average_weights;
  request.output_dir = options.output_dir.empty() ? sources.default_output : options.output_dir;
  request.replace_output = options.output_dir.empty();  // our own folder
  request.threads = options.threads > 0
                        ? options.threads
                        : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  return request;
}

/// A cast leaves out what is no plain floating-point number; nobody should find that out later.
void tell_kept(const MergeRequest& request, std::ostream& err) {
  if (!request.dtype) return;
  std::map<std::string_view, std::size_t> kept;
  std::size_t all = 0;
  for (const checkpoint::TensorPlan& tensor : request.plans[0].tensors) {
    if (checkpoint::is_convertible(tensor.dtype)) continue;
    ++kept[checkpoint::dtype_name(tensor.dtype)];
    ++all;
  }
  if (all == 0) return;
  err << "evalcar merge: " << all << (all == 1 ? " tensor keeps its" : " tensors keep their")
      << " dtype, which --dtype does not cast:";
  for (const char* separator = " "; const auto& [name, count] : kept)
    err << std::exchange(separator, ", ") << name << " (" << count << ")";
  err << "\n";
}

void print_report(const MergeRequest& request, const checkpoint::MergeReport& report, bool dry_run,
                  std::ostream& out) {
  for (std::size_t i = 0; i < request.source_dirs.size(); ++i) {
    out << "from  " << printable(request.source_dirs[i]);
    if (!request.weights.empty()) out << "  with weight " << request.weights[i];
    out << "\n";
  }
  out << (dry_run ? "would write  " : "wrote  ") << printable(request.output_dir) << "\n";
  for (const checkpoint::MergedFile& file : report.files) {
    out << "  " << file.name << "  " << file.tensors.size() << " tensors, " << file.bytes
        << " bytes\n";
  }
  for (const std::string& name : report.side_files) out << "  " << printable(name) << "\n";
}

}  // namespace

int run_merge(const MergeOptions& options, FileSystem& files, std::ostream& out,
              std::ostream& err) {
  const auto fail = [&](const Error& error) {
    err << "evalcar merge: " << error.message << "\n";
    return exit_code_of_merge(error);
  };
  auto request = make_request(options, files, err);
  if (!request.has_value()) return fail(request.error());

  const StopSignals signals;
  request->cancelled = &stop_requested;
  auto report = checkpoint::plan_merge(files, *request);
  if (report.has_value() && !options.dry_run) {
    TransferProgress progress("merge", report->tensor_bytes);
    request->on_progress = [&](std::uint64_t done) { progress.show(done); };
    report = checkpoint::merge(files, *request);
  }
  if (!report.has_value()) return fail(report.error());
  if (report->untied) {
    err << "evalcar merge: the input embedding and lm_head differ, so the written configuration "
           "does not "
           "tie them (tie_word_embeddings = false)\n";
  }
  if (report->still_tied) {
    err << "evalcar merge: an output head differs from the input embedding, and the written "
           "configuration still ties them: in a model of this kind that does more, or may. "
           "transformers 5 loads both as they are, transformers 4 drops the head\n";
  }
  for (const std::string& why : report->left_out) {
    err << "evalcar merge: left out: " << printable(why) << "\n";
  }
  tell_kept(*request, err);
  print_report(*request, *report, options.dry_run, out);
  if (options.on_written && !options.dry_run) options.on_written(request->output_dir);
  return kExitDone;
}

}  // namespace evalcar::cli
