// One line of lmms-eval's samples file.
#pragma once

#include <cstdint>
#include <string>

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/python_json.h"

namespace evalcar::tasks {

struct SampleLine {
  std::int64_t doc_id = 0;
  std::string target;  ///< str() of the target
  Value response;      ///< as generated; or lm-eval's [[log-likelihood, greedy], …]
  Value filtered;      ///< what was scored
  Value token_counts;  ///< [{"output_tokens": n}, …]
  Value metrics;       ///< what the scorer gives, in its order
  std::string input;
};

/// The line without its newline, keys in lmms-eval's order. `document` gives `input_media`;
/// `arguments` is what lmms-eval searches for pictures beside it.
std::string format_sample_line(const SampleLine& sample, const Value& document,
                               const Value& arguments);

}  // namespace evalcar::tasks
