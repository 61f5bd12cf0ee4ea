#include "agent/cli/inspect_command.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>
#include <utility>

#include "agent/cli/checkpoint_choice.h"
#include "agent/cli/diff_report.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/inspect_report.h"
#include "agent/cli/merge_sources.h"
#include "agent/cli/transfer_progress.h"
#include "store/base/text.h"
#include "store/checkpoint/config_warnings.h"
#include "store/checkpoint/output_place.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/plan_warnings.h"

namespace evalcar::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

int exit_code_of_findings(const Findings& findings) {
  if (!findings.error) return kExitDone;
  switch (findings.error->code) {
    case ErrorCode::kUnavailable:
      return kExitNotReady;
    case ErrorCode::kNotFound:
      return findings.report ? kExitNotReady : kExitUsage;
    case ErrorCode::kInvalidArgument:
      return findings.report ? kExitFailed : kExitUsage;
    default:
      return kExitFailed;
  }
}

int hash_threads(const InspectOptions& options) {
  if (options.threads > 0) return options.threads;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
}

/// What is looked at: the folder that was named or, where that is a run's, its newest checkpoint
/// with complete weights, or the newest one if there is none. Who gives a --pattern asks for those.
Result<std::string> choose_one_from_run(const FileSystem& files, const NamedFolder& named,
                                        const InspectOptions& options,
                                        const checkpoint::LayoutOptions& layout,
                                        Findings& findings) {
  const std::vector<std::string> patterns = checkpoint_patterns(options.pattern);
  const auto found = steps_of_run(files, named.path, patterns);
  if (!found.has_value() || found->steps.empty()) {
    const bool is_meant = options.pattern.empty() || step_in_name(named.path, patterns).has_value();
    if (is_meant) return named.path;
    return no_checkpoints(files, named.path, options.pattern);
  }
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

/// The folder that was named, and in `layout` and `options` which of its weights are meant.
Result<NamedFolder> find_folder(const FileSystem& files, const std::string& folder,
                                InspectOptions& options, checkpoint::LayoutOptions& layout) {
  std::string dirname = options.state_dict_dirname;
  EVALCAR_RETURN_IF_ERROR(check_pattern(options.pattern));
  EVALCAR_RETURN_IF_ERROR(check_dirname(dirname));
  EVALCAR_ASSIGN_OR_RETURN(const NamedFolder named,
                           find_input(files, folder, checkpoint_patterns(options.pattern), dirname,
                                      layout, "a checkpoint, such as RUN/checkpoint-500"));
  const std::string& shards = named.shard_folder.empty() ? dirname : named.shard_folder;
  if (!dirname.empty() && shards != dirname) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--state_dict_dirname " + dirname + ": CHECKPOINT names " + shards);
  }
  if (!shards.empty()) {
    EVALCAR_RETURN_IF_ERROR(select_shard_folder(shards, layout, options.weights));
  }
  return named;
}

/// A folder that holds one set of weights only is compared by that one, whatever was chosen of the
/// first: EMA weights with what they were merged into.
enum class Choice { kAsked, kOnlyOne };

Findings look_at(const std::string& folder, InspectOptions& options, bool hash,
                 const FileSystem& files, Choice choice) {
  Findings findings;
  findings.folder = folder;
  checkpoint::LayoutOptions layout;
  const std::vector<std::string> patterns = checkpoint_patterns(options.pattern);
  const auto named = find_folder(files, folder, options, layout);
  if (!named.has_value()) {
    findings.error = named.error();
    return findings;
  }
  const auto model = find_given_model(files, options.model_name_or_class, "");
  if (!model.has_value()) {
    findings.error = model.error();
    return findings;
  }
  layout.base_model = *model;
  const auto chosen = choose_one_from_run(files, *named, options, layout, findings);
  if (!chosen.has_value()) {
    findings.error = chosen.error();
    return findings;
  }
  const std::string& real = *chosen;
  findings.has_config =
      !model->empty() || files.info_followed(join_path(real, "config.json")).has_value();
  // Weights are weights without a configuration, too; only an evaluation needs one.
  layout.weights_only = !findings.has_config;
  auto report = checkpoint::inspect_layout(files, real, layout);
  if (!report.has_value()) {
    findings.error = explain_missing(files, real, report.error(), layout);
    return findings;
  }
  findings.report = std::move(report).value();
  if (const auto step = step_of_checkpoint(files, real, patterns)) findings.report->step = step;
  if (choice == Choice::kOnlyOne && findings.report->kinds.size() == 1) {
    options.weights = findings.report->kinds[0].kind;
  }
  auto plan = checkpoint::make_plan(files, real, options.weights, layout);
  if (!plan.has_value()) {
    findings.error = plan.error();
    return findings;
  }
  findings.plan = std::move(plan).value();
  findings.warnings = checkpoint::warnings_of(files, *findings.plan);
  std::string steps = two_steps(files, real, patterns);
  if (!steps.empty()) findings.warnings.push_back(std::move(steps));
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

Result<OrderedJson> compare(const FileSystem& files, const Findings& here, const Findings& there,
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
  const Findings here = look_at(options.checkpoint, options, hash, files, Choice::kAsked);
  tell_choice(files, here, err);
  OrderedJson document = findings_json(here, options.weights);
  int code = exit_code_of_findings(here);
  if (here.error) err << "evalcar inspect: " << here.error->message << "\n";
  for (const std::string& warning : here.warnings) {
    err << "evalcar inspect: warning: " << printable(warning) << "\n";
  }

  if (!options.diff.empty() && here.digests) {
    InspectOptions other = options;
    other.state_dict_dirname.clear();  // the other one may be a merged folder
    const Findings there = look_at(options.diff, other, true, files, Choice::kOnlyOne);
    tell_choice(files, there, err);
    const auto diff =
        there.digests ? compare(files, here, there, options) : Result<OrderedJson>(*there.error);
    if (diff.has_value()) {
      document["diff"] = *diff;
      if (!document["diff"]["equal"].get<bool>()) code = kExitFailed;
    } else {
      err << "evalcar inspect: " << diff.error().message << "\n";
      document["diff"] = {
          {"other", options.diff}, {"equal", nullptr}, {"error", diff.error().message}};
      code = there.digests ? kExitFailed : exit_code_of_findings(there);
    }
  }
  if (options.json) {
    print_json(document, here, out);
    return code;
  }
  if (code != kExitUsage) print_people(document, here, out);
  const bool compared = document.contains("diff") && !document["diff"].contains("error");
  if (compared) print_diff(document["diff"], out);
  return code;
}

}  // namespace evalcar::cli
