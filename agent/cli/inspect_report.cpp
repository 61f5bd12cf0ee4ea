#include "agent/cli/inspect_report.h"

#include <ostream>
#include <string_view>
#include <utility>

#include "store/base/text.h"

namespace evalcar::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

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

std::string dump(const OrderedJson& document, int indent = -1) {
  // Names out of a file need not be UTF-8; they must not stop the report.
  return document.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

std::size_t tensors_of(const Findings& findings) {
  return findings.plan ? findings.plan->tensors.size() : 0;
}

OrderedJson tensor_json(const Findings& findings, std::size_t i) {
  const checkpoint::TensorPlan& tensor = findings.plan->tensors[i];
  OrderedJson entry = {{"name", tensor.name},
                       {"dtype", checkpoint::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"sha256", nullptr}};
  if (findings.digests) entry["sha256"] = (*findings.digests)[i].sha256;
  if (tensor.tied_to) entry["tied_to"] = findings.plan->tensors[*tensor.tied_to].name;
  return entry;
}

}  // namespace

OrderedJson findings_json(const Findings& findings, checkpoint::WeightsKind kind) {
  OrderedJson document = {{"layout", nullptr},
                          {"complete", !findings.error.has_value()},
                          {"reason", nullptr},
                          {"step", nullptr},
                          {"world_size", nullptr},
                          {"weights_sha256", nullptr},
                          {"warnings", OrderedJson::array()},
                          {"tensors", OrderedJson::array()}};
  document["checkpoint"] = findings.folder;
  document["run"] = findings.run ? OrderedJson(*findings.run) : OrderedJson(nullptr);
  document["steps"] = findings.steps;
  document["checkpoint_type"] = checkpoint::weights_kind_name(kind);
  document["has_config"] = findings.has_config;
  document["kinds"] = OrderedJson::array();
  if (findings.error) document["reason"] = findings.error->message;
  for (const std::string& warning : findings.warnings) document["warnings"].push_back(warning);
  if (findings.report) {
    document["layout"] = checkpoint::layout_name(findings.report->layout);
    if (findings.report->step) document["step"] = *findings.report->step;
    for (const checkpoint::KindState& state : findings.report->kinds) {
      document["kinds"].push_back(
          {{"checkpoint_type", checkpoint::weights_kind_name(state.kind)},
           {"state", completeness_name(state.completeness)},
           {"reason", state.reason.empty() ? OrderedJson(nullptr) : OrderedJson(state.reason)}});
      if (state.kind == kind && state.world_size > 0) {
        document["world_size"] = state.world_size;
      }
    }
  }
  if (findings.digests) document["weights_sha256"] = checkpoint::weights_sha256(*findings.digests);
  return document;
}

void print_json(const OrderedJson& document, const Findings& findings, std::ostream& out) {
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

void print_people(const OrderedJson& document, const Findings& findings, std::ostream& out) {
  const auto text = [](const OrderedJson& value) -> std::string {
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
  for (const OrderedJson& kind : document["kinds"]) {
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
    const OrderedJson tensor = tensor_json(findings, i);
    out << "  " << printable(dump(tensor["name"])) << "  " << text(tensor["dtype"]) << "  "
        << dump(tensor["shape"]);
    if (!tensor["sha256"].is_null()) out << "  " << text(tensor["sha256"]);
    if (tensor.contains("tied_to")) out << "  (tied to " << text(tensor["tied_to"]) << ")";
    out << "\n";
  }
}

}  // namespace evalcar::cli
