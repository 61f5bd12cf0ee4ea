#include "agent/cli/complete_settings.h"
#include "agent/cli/doctor.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;

Finding judge(const checkpoint::KindState& kind) {
  const std::string name = std::string(checkpoint::weights_kind_name(kind.kind)) + " weights";
  switch (kind.completeness) {
    case checkpoint::Completeness::kComplete:
      return {"checkpoint", Level::kOk,
              name + ": complete, " + std::to_string(kind.files.size()) + " files"};
    case checkpoint::Completeness::kAbsent:
      return {"checkpoint", Level::kOk, name + ": none"};
    case checkpoint::Completeness::kPending:
      return {"checkpoint", Level::kOk, name + ": not started: " + kind.reason};
    case checkpoint::Completeness::kIncomplete:
      break;
  }
  if (kind.unsupported) {
    return {"checkpoint", Level::kProblem, name + ": " + kind.reason,
            "`evalcar models` lists what can be read"};
  }
  if (kind.damaged) {
    return {"checkpoint", Level::kProblem, name + ": damaged: " + kind.reason,
            "have the trainer save it again; waiting will not help"};
  }
  return {"checkpoint", Level::kProblem, name + ": incomplete: " + kind.reason,
          "wait until it is written, or have the trainer save it again"};
}

}  // namespace

Findings check_checkpoint(const FileSystem& files, const config::Settings& settings,
                          const std::string& dir) {
  config::Settings placed = settings;
  if (const Status base = place_base_model(files, placed); !base.has_value()) {
    return {{"checkpoint", Level::kProblem, base.error().message,
             "fetch the model, or name its folder"}};
  }
  checkpoint::LayoutOptions options;
  options.base_model = placed.evaluate.base_model;
  const auto report = checkpoint::inspect_layout(files, dir, options);
  if (!report.has_value()) {
    return {{"checkpoint", Level::kProblem, report.error().message,
             "name the folder of one checkpoint, e.g. checkpoint-500"}};
  }
  Findings findings = {{"checkpoint", Level::kOk,
                        dir + ": " + std::string(checkpoint::layout_name(report->layout)) +
                            (report->step.has_value() ? ", step " + std::to_string(*report->step)
                                                      : std::string(", of no step that is told"))}};
  for (const checkpoint::KindState& kind : report->kinds) findings.push_back(judge(kind));
  return findings;
}

}  // namespace evalcar::cli
