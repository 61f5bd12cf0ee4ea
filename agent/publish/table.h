// lmms-eval's table of results (evaluator_utils.make_table): task, version, filter, n-shot, metric,
// direction, value, stderr. Markdown that lines up in a terminal.
#pragma once

#include <string>
#include <vector>

#include "store/protocol/messages.h"

namespace evalcar::publish {

/// The table of one evaluation. A bootstrap standard error of ours is marked with "*" and
/// explained below the table; a metric without a value shows "N/A" and its reason below.
std::string results_table(const protocol::EvaluationResult& result);

/// Any table in the same look: header, one text per cell, columns with `right` aligned right.
std::string markdown_table(const std::vector<std::string>& header,
                           const std::vector<std::vector<std::string>>& rows,
                           const std::vector<bool>& right);

/// Four digits after the point, as lmms-eval prints values.
std::string format_value(double value);

}  // namespace evalcar::publish
