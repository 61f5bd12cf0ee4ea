#include "agent/report/sample_part.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "agent/report/sample_score.h"

namespace evalcar::report {
namespace {

using Json = nlohmann::json;

/// -Σ log-likelihood and Σ tokens of a conversation's answers: [[log-likelihood, greedy], …] and
/// [{"output_tokens": n}, …].
std::optional<SamplePart> conversation_part(const Json& line) {
  const auto likelihoods = line.find("filtered_resps");
  const auto counts = line.find("token_counts");
  if (likelihoods == line.end() || counts == line.end() || !likelihoods->is_array() ||
      !counts->is_array() || likelihoods->size() != counts->size())
    return std::nullopt;
  SamplePart part{.sum = 0, .weight = 0};
  for (const Json& one : *likelihoods) {
    if (!one.is_array() || one.empty() || !one.front().is_number()) return std::nullopt;
    part.sum -= one.front().get<double>();
  }
  for (const Json& one : *counts) {
    const auto tokens = one.is_object() ? one.find("output_tokens") : one.end();
    if (!one.is_object() || tokens == one.end() || !tokens->is_number()) return std::nullopt;
    part.weight += tokens->get<double>();
  }
  return part;
}

std::optional<SamplePart> part_of(const Json& line, const std::string& metric) {
  if (!line.is_object()) return std::nullopt;
  const auto found = line.find(metric);
  if (found == line.end()) return std::nullopt;
  // [log-likelihood, words or bytes]
  if (found->is_array()) {
    if (found->size() != 2 || !found->front().is_number() || !found->back().is_number())
      return std::nullopt;
    return SamplePart{-found->front().get<double>(), found->back().get<double>()};
  }
  if (found->is_null()) return std::nullopt;  // no token of it counted
  if (metric == "loss") return conversation_part(line);
  if (metric == "perplexity") {
    // A continuation's line tells its log-likelihood, never above 0; a conversation's its own
    // perplexity, never below 1.
    if (!found->is_number() || found->get<double>() >= 0.5) return conversation_part(line);
    return SamplePart{-found->get<double>(), 1};
  }
  const auto score = sample_score(line, metric);
  return score.has_value() ? std::optional(SamplePart{*score, 1}) : std::nullopt;
}

}  // namespace

Scale scale_of(const std::string& metric) {
  if (metric == "bits_per_byte") return Scale::kBits;
  return metric.ends_with("perplexity") ? Scale::kExponential : Scale::kPlain;
}

double scaled(Scale scale, double ratio) {
  switch (scale) {
    case Scale::kExponential:
      return std::exp(ratio);
    case Scale::kBits:
      return ratio / std::log(2.0);
    case Scale::kPlain:
      break;
  }
  return ratio;
}

double slope_of(Scale scale, double ratio) {
  return scale == Scale::kBits ? 1 / std::log(2.0) : scale == Scale::kPlain ? 1 : std::exp(ratio);
}

std::optional<SamplePart> sample_part(const Json& line, const std::string& metric) {
  const auto part = part_of(line, metric);
  const bool counts = part.has_value() && std::isfinite(part->sum) && std::isfinite(part->weight) &&
                      part->weight > 0;
  return counts ? part : std::nullopt;
}

}  // namespace evalcar::report
