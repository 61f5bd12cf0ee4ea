// What one logged sample is of a metric over all samples: not always its share of a mean.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace evalcar::report {

/// The metric is scaled(Σ sum / Σ weight) over the samples: a mean weighs each 1, a loss or a
/// perplexity by its tokens, words or bytes (evaluator/tasks/likelihood_score.cpp).
struct SamplePart {
  double sum = 0;
  double weight = 1;
};

/// From that ratio to the metric.
enum class Scale { kPlain, kExponential, kBits };

/// By the metric's name: perplexities are exponential, "bits_per_byte" is in bits, all others are
/// the ratio itself.
Scale scale_of(const std::string& metric);
double scaled(Scale scale, double ratio);
/// d scaled(ratio) / d ratio.
double slope_of(Scale scale, double ratio);

/// Of a line of lmms-eval's, or of lm-eval's where likelihoods were asked. Absent: the line does
/// not tell it, or not as finite numbers.
std::optional<SamplePart> sample_part(const nlohmann::json& line, const std::string& metric);

}  // namespace evalcar::report
