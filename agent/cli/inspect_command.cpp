#include "agent/cli/inspect_command.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>
#include <utility>

#include "agent/cli/checkpoint_choice.h"
#include "agent/cli/diff_report.h"
#include "agent/cli/merge_sources.h"
#include "agent/cli/transfer_progress.h"
#include "store/base/text.h"
#include "store/checkpoint/config_warnings.h"
#include "store/checkpoint/output_place.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/plan_warnings.h"

namespace evalcar::cli {
namespace {

using checkpoint::KindState;
using checkpoint::Plan;
using checkpoint::TensorDigest;
using nlohmann::ordered_json;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotReady = 3;

/// Everything that was found out about one checkpoint. What is absent is null in the JSON.
struct Findings {
  std::string folder;                 // as it was given; of a run's checkpoint: where that one is
  std::optional<std::string> run;     // the run folder, if one was given
  std::vector<std::int64_t> steps;    // of its checkpoints, from the first
  std::vector<std::string> left_out;  // newer ones, each with the reason
  bool has_final_model = false;       // of the run: in its own folder
  std::optional<checkpoint::LayoutReport> report;
  std::optional<Plan> plan;
  std::optional<std::vector<TensorDigest>> digests;
  std::optional<Error> error;  // why there is no plan or no digests
  std::vector<std::string> warnings;
  bool has_config = false;  // beside the weights, or in the model that is given
};

int exit_code(const Findings& findings) {
  if (!findings.error) return kDone;
  switch (findings.error->code) {
    case ErrorCode::kUnavailable:
      return kNotReady;
    case ErrorCode::kNotFound:
      return findings.report ? kNotReady : kUsage;
    case ErrorCode::kInvalidArgument:
      return findings.report ? kFailed : kUsage;
    default:
      return kFailed;
  }
}

int hash_threads(const InspectOptions& options) {
  if (options.threads > 0) return options.threads;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
}

/// What is looked at: the folder that was named or, where that is a run's, its newest checkpoint
/// with complete weights, or the newest one if there is none.
std::string choose_from_run(const FileSystem& files, const NamedFolder& named,
                            const InspectOptions& options, const checkpoint::LayoutOptions& layout,
                            Findings& findings) {
  const std::vector<std::string> patterns = checkpoint_patterns("");
  const auto found = steps_of_run(files, named.path, patterns);
  if (!found.has_value() || found->steps.empty()) return named.path;
  findings.run = named.path;
  findings.has_final_model = checkpoint::inspect_layout(files, named.path).has_value();
  findings.steps.assign(found->steps.rbegin(), found->steps.rend());
  CompleteCheckpoints complete =
      complete_checkpoints(files, named.path, *found, options.weights, layout, false);
  findings.left_out = std::move(complete.left_out);
  findings.folder = complete.folders.empty() ? join_path(named.path, found->name(found->steps[0]))
                                             : complete.folders.back();
  return findings.folder;
}

Findings look_at(const std::string& folder, InspectOptions& options, bool hash,
                 const FileSystem& files) {
  Findings findings;
  findings.folder = folder;
  checkpoint::LayoutOptions layout;
  const auto named = find_named_folder(files, folder, checkpoint_patterns(""), layout,
                                       "a checkpoint, such as RUN/checkpoint-500");
  if (!named.has_value()) {
    findings.error = named.error();
    return findings;
  }
  if (!named->shard_folder.empty()) {
    select_shard_folder(named->shard_folder, layout, options.weights);
  }
  const auto model = find_given_model(files, options.model_name_or_class, "");
  if (!model.has_value()) {
    findings.error = model.error();
    return findings;
  }
  layout.base_model = *model;
  const std::string real = choose_from_run(files, *named, options, layout, findings);
  findings.has_config =
      !model->empty() || files.info_followed(join_path(real, "config.json")).has_value();
  // Weights are weights without a configuration, too; only an evaluation needs one.
  layout.weights_only = !findings.has_config;
  auto report = checkpoint::inspect_layout(files, real, layout);
  if (!report.has_value()) {
    findings.error = report.error();
    return findings;
  }
  findings.report = std::move(report).value();
  auto plan = checkpoint::make_plan(files, real, options.weights, layout);
  if (!plan.has_value()) {
    findings.error = plan.error();
    return findings;
  }
  findings.plan = std::move(plan).value();
  findings.warnings = checkpoint::warnings_of(files, *findings.plan);
  const bool own_config = files.info_followed(join_path(real, "config.json")).has_value();
  const std::string& config_folder = own_config ? real : *model;
  for (std::string& warning :
       checkpoint::warnings_of_config(files, config_folder, *findings.plan)) {
    findings.warnings.push_back(std::move(warning));
  }
  if (!hash) return findings;
  TransferProgress bar("hash", findings.plan->bytes());
  auto digests = checkpoint::hash_plan(files, *findings.plan, hash_threads(options),
                                       [&](std::uint64_t done) { bar.show(done); });
  if (digests.has_value()) {
    findings.digests = std::move(digests).value();
  } else {
    findings.error = digests.error();
  }
  return findings;
}

std::string_view completeness_name(checkpoint::Completeness completeness) {
  switch (completeness) {
    case checkpoint::Completeness::kAbsent:
      return "absent";
    case checkpoint::Completeness::kPending:
      return "pending";
    case checkpoint::Completeness::kIncomplete:
      return "incomplete";
    case checkpoint::Completeness::kComplete:
      break;
  }
  return "complete";
}

ordered_json tensor_json(const Findings& findings, std::size_t i) {
  const checkpoint::TensorPlan& tensor = findings.plan->tensors[i];
  ordered_json entry = {{"name", tensor.name},
                        {"dtype", checkpoint::dtype_name(tensor.dtype)},
                        {"shape", tensor.shape},
                        {"sha256", nullptr}};
  if (findings.digests) entry["sha256"] = (*findings.digests)[i].sha256;
  if (tensor.tied_to) entry["tied_to"] = findings.plan->tensors[*tensor.tied_to].name;
  return entry;
}

/// Without the tensors, of which there can be very many.
ordered_json findings_json(const Findings& findings, const InspectOptions& options) {
  ordered_json document = {{"layout", nullptr},
                           {"complete", !findings.error.has_value()},
                           {"reason", nullptr},
                           {"step", nullptr},
                           {"world_size", nullptr},
                           {"weights_sha256", nullptr},
                           {"warnings", ordered_json::array()},
                           {"tensors", ordered_json::array()}};
  document["checkpoint"] = findings.folder;
  document["run"] = findings.run ? ordered_json(*findings.run) : ordered_json(nullptr);
  document["steps"] = findings.steps;
  document["checkpoint_type"] = checkpoint::weights_kind_name(options.weights);
  document["has_config"] = findings.has_config;
  document["kinds"] = ordered_json::array();
  if (findings.error) document["reason"] = findings.error->message;
  for (const std::string& warning : findings.warnings) document["warnings"].push_back(warning);
  if (findings.report) {
    document["layout"] = checkpoint::layout_name(findings.report->layout);
    if (findings.report->step) document["step"] = *findings.report->step;
    for (const KindState& state : findings.report->kinds) {
      document["kinds"].push_back(
          {{"checkpoint_type", checkpoint::weights_kind_name(state.kind)},
           {"state", completeness_name(state.completeness)},
           {"reason", state.reason.empty() ? ordered_json(nullptr) : ordered_json(state.reason)}});
      if (state.kind == options.weights && state.world_size > 0) {
        document["world_size"] = state.world_size;
      }
    }
  }
  if (findings.digests) document["weights_sha256"] = checkpoint::weights_sha256(*findings.digests);
  return document;
}

std::string dump(const ordered_json& document, int indent = -1) {
  // Names out of a file need not be UTF-8; they must not stop the report.
  return document.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::size_t tensors_of(const Findings& findings) {
  return findings.plan ? findings.plan->tensors.size() : 0;
}

/// The document with its tensors, one after the other.
void print_json(const ordered_json& document, const Findings& findings, std::ostream& out) {
  char separator = '{';
  for (const auto& [key, value] : document.items()) {
    out << std::exchange(separator, ',') << dump(key) << ':';
    if (key != "tensors") {
      out << dump(value);
      continue;
    }
    out << '[';
    for (std::size_t i = 0; i < tensors_of(findings); ++i) {
      out << (i > 0 ? "," : "") << dump(tensor_json(findings, i));
    }
    out << ']';
  }
  out << "}\n";
}

void print_people(const ordered_json& document, const Findings& findings, std::ostream& out) {
  const auto text = [](const ordered_json& value) -> std::string {
    if (value.is_string()) return printable(value.get<std::string>());
    return value.is_null() ? "-" : dump(value);
  };
  if (!document["run"].is_null()) {
    out << "run         " << text(document["run"]) << " with " << document["steps"].size()
        << " checkpoints, of the steps " << dump(document["steps"]) << "\n";
  }
  out << "checkpoint  " << text(document["checkpoint"]) << "\n"
      << "layout      " << text(document["layout"]) << "\n"
      << "step        " << text(document["step"]) << "\n";
  if (!document["world_size"].is_null()) {
    out << "world size  " << text(document["world_size"]) << "\n";
  }
  for (const ordered_json& kind : document["kinds"]) {
    out << "weights     " << text(kind["checkpoint_type"]) << ": " << text(kind["state"]);
    if (!kind["reason"].is_null()) out << " (" << text(kind["reason"]) << ")";
    out << "\n";
  }
  out << "complete    ";
  if (!document["complete"].get<bool>()) {
    out << "no: " << text(document["reason"]);
  } else {
    out << (document["has_config"].get<bool>() ? "yes" : "yes (weights alone, no config.json)");
  }
  out << "\n";
  if (!document["weights_sha256"].is_null()) {
    out << "weights_sha256  " << text(document["weights_sha256"]) << "\n";
  }
  if (tensors_of(findings) > 0) out << tensors_of(findings) << " tensors:\n";
  for (std::size_t i = 0; i < tensors_of(findings); ++i) {
    const ordered_json tensor = tensor_json(findings, i);
    out << "  " << printable(dump(tensor["name"])) << "  " << text(tensor["dtype"]) << "  "
        << dump(tensor["shape"]);
    if (!tensor["sha256"].is_null()) out << "  " << text(tensor["sha256"]);
    if (tensor.contains("tied_to")) out << "  (tied to " << text(tensor["tied_to"]) << ")";
    out << "\n";
  }
}

Result<ordered_json> compare(const FileSystem& files, const Findings& here, const Findings& there,
                             const InspectOptions& options) {
  return diff_json({files, *here.plan, *here.digests, *there.plan, *there.digests, options.diff,
                    hash_threads(options)});
}

/// Of a run folder: which checkpoint was taken, and which newer ones were not; or that the final
/// model in it was.
void tell_choice(const FileSystem& files, const Findings& findings, std::ostream& err) {
  if (!findings.run) {
    const std::string other =
        findings.report ? checkpoint::checkpoint_in_run(files, findings.folder) : "";
    if (other.empty()) return;
    err << "evalcar inspect: the weights in " << printable(findings.folder)
        << " itself are looked at, not those of checkpoints in it such as " << printable(other)
        << "\n";
    return;
  }
  for (const std::string& why : findings.left_out) {
    err << "evalcar inspect: left out: " << printable(why) << "\n";
  }
  err << "evalcar inspect: " << printable(*findings.run) << " is a run folder; of its checkpoints "
      << printable(findings.folder) << " is looked at"
      << (findings.has_final_model ? ", not the weights in the run folder itself\n" : "\n");
}

}  // namespace

int run_inspect(const InspectOptions& given, FileSystem& files, std::ostream& out,
                std::ostream& err) {
  InspectOptions options = given;  // a named folder of shards says which weights are meant
  const bool hash = options.hash || !options.diff.empty();
  const Findings here = look_at(options.checkpoint, options, hash, files);
  tell_choice(files, here, err);
  ordered_json document = findings_json(here, options);
  int code = exit_code(here);
  if (here.error) err << "evalcar inspect: " << here.error->message << "\n";
  for (const std::string& warning : here.warnings) {
    err << "evalcar inspect: warning: " << printable(warning) << "\n";
  }

  if (!options.diff.empty() && here.digests) {
    InspectOptions other = options;
    const Findings there = look_at(options.diff, other, true, files);
    tell_choice(files, there, err);
    const auto diff =
        there.digests ? compare(files, here, there, options) : Result<ordered_json>(*there.error);
    if (diff.has_value()) {
      document["diff"] = *diff;
      if (!document["diff"]["equal"].get<bool>()) code = kFailed;
    } else {
      err << "evalcar inspect: " << diff.error().message << "\n";
      code = there.digests ? kFailed : exit_code(there);
    }
  }
  if (options.json) {
    print_json(document, here, out);
    return code;
  }
  if (code != kUsage) print_people(document, here, out);
  if (document.contains("diff")) print_diff(document["diff"], out);
  return code;
}

}  // namespace evalcar::cli
