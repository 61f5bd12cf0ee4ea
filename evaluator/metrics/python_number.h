// Numbers as Python reads, rounds and writes them.
#pragma once

#include <optional>
#include <string>

#include "evaluator/metrics/python_text.h"

namespace evalcar::metrics {

/// repr(float): the shortest digits that read back, "1.0", "1e-05", "inf", "nan".
std::string float_repr(double value);
/// round(value, digits), correctly rounded on the exact binary value; 0 <= digits <= 20.
double round_to(double value, int digits);
/// float(text): blanks around it, underscores between digits, decimal digits of any script, inf and
/// nan; absent where Python raises ValueError.
std::optional<double> parse_float(TextView text);

}  // namespace evalcar::metrics
