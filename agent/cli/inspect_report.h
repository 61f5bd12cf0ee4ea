// What `evalcar inspect` found out about a checkpoint, and how it is printed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/layout.h"
#include "store/checkpoint/plan.h"

namespace evalcar::cli {

/// Everything that was found out about one checkpoint. What is absent is null in the JSON.
struct Findings {
  std::string folder;                 ///< as it was given; of a run's checkpoint: where that one is
  std::optional<std::string> run;     ///< the run folder, if one was given
  std::vector<std::int64_t> steps;    ///< of its checkpoints, from the first
  std::vector<std::string> left_out;  ///< newer ones, each with the reason
  bool has_final_model = false;       ///< of the run: in its own folder
  std::optional<checkpoint::LayoutReport> report;
  std::optional<checkpoint::Plan> plan;
  std::optional<std::vector<checkpoint::TensorDigest>> digests;
  std::optional<Error> error;  ///< why there is no plan or no digests
  std::vector<std::string> warnings;
  bool has_config = false;  ///< beside the weights, or in the model that is given
};

/// The document of the contract without its tensors, of which there can be very many.
/// @param kind which weights were looked at
nlohmann::ordered_json findings_json(const Findings& findings, checkpoint::WeightsKind kind);

/// The document with its tensors, one after the other, in one line.
void print_json(const nlohmann::ordered_json& document, const Findings& findings,
                std::ostream& out);

/// The same as a table.
void print_people(const nlohmann::ordered_json& document, const Findings& findings,
                  std::ostream& out);

}  // namespace evalcar::cli
