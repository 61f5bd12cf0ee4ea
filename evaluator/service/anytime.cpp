#include "evaluator/service/anytime.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "evaluator/metrics/mme.h"
#include "evaluator/metrics/statistics.h"
#include "store/base/hash.h"

namespace evalcar::service {
namespace {

/// The place of a unit in the order, by its first document.
std::uint64_t draw(std::string_view task, std::int64_t seed, std::int64_t doc_id) {
  const std::string name =
      "anytime\n" + std::to_string(seed) + "\n" + std::string(task) + "\n" + std::to_string(doc_id);
  return xxh3_64(std::as_bytes(std::span(name)));
}

/// Whole units, in the order in which they are answered.
std::vector<std::vector<std::size_t>> shuffled_units(std::string_view task, std::int64_t seed,
                                                     std::span<const std::int64_t> documents,
                                                     std::span<const std::uint64_t> units) {
  std::vector<std::vector<std::size_t>> shuffled;
  std::map<std::uint64_t, std::size_t> known;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const auto [at, is_new] = known.try_emplace(units[d], shuffled.size());
    if (is_new) shuffled.emplace_back();
    shuffled[at->second].push_back(d);
  }
  const auto place = [&](const std::vector<std::size_t>& unit) {
    const std::int64_t first = documents[unit.front()];
    return std::make_pair(draw(task, seed, first), first);
  };
  std::ranges::sort(shuffled, {}, place);
  return shuffled;
}

/// The answers of a part have dependent scores where they are about one picture. Of a ratio (a loss
/// per token) the error is clustered by document already.
void cluster_errors(protocol::InterimScore& score, const tasks::Scores& scores,
                    std::span<const std::string> clusters) {
  const std::set<std::string> distinct(clusters.begin(), clusters.end());
  if (distinct.size() == clusters.size()) return;
  for (protocol::Metric& metric : score.metrics) {
    if (!metric.stderr_value.has_value()) continue;
    const auto own = scores.values_of.find(metric.name);
    if (own == scores.values_of.end() && !scores.has_one_mean) continue;
    const std::span<const double> values =
        own == scores.values_of.end() ? scores.values : own->second;
    metric.stderr_value = metrics::clustered_stderr(values, clusters);
    metric.stderr_source = metric.stderr_value.has_value() ? "clustered" : "";
  }
}

/// Of these documents, by place: the categories that each metric of MME adds up.
Result<std::map<std::string, std::set<std::string>>> mme_categories(
    const TaskJob& job, std::span<const std::size_t> documents) {
  std::map<std::string, std::set<std::string>> categories;
  for (const std::size_t d : documents) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string text, job.task->document_json(job.documents[d]));
    const auto document = nlohmann::json::parse(text, nullptr, false);
    const auto found = document.is_object() ? document.find("category") : document.end();
    if (!document.is_object() || found == document.end() || !found->is_string()) continue;
    const auto category = found->get<std::string>();
    categories[metrics::is_mme_perception(category) ? "mme_perception_score"
                                                    : "mme_cognition_score"]
        .insert(category);
  }
  return categories;
}

/// A sum of fewer categories than there are is no guess at the sum of all.
Status leave_partial_sums(protocol::InterimScore& score, const TaskJob& job, const Part& part) {
  std::vector<std::size_t> chosen(job.documents.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  EVALCAR_ASSIGN_OR_RETURN(const auto all, mme_categories(job, chosen));
  EVALCAR_ASSIGN_OR_RETURN(auto answered, mme_categories(job, part.documents));
  for (protocol::Metric& metric : score.metrics) {
    const auto wanted = all.find(metric.name);
    if (!metric.value.has_value() || wanted == all.end()) continue;
    const std::size_t there = answered[metric.name].size();
    if (there == wanted->second.size()) continue;
    metric.value.reset();
    metric.stderr_value.reset();
    metric.stderr_source.clear();
    metric.missing = "the sum of " + std::to_string(wanted->second.size()) +
                     " categories, and this part has documents of " + std::to_string(there);
  }
  return {};
}

/// What a reader must know of the score: TaskResult::notes, less what is of results alone.
std::string notes_of(const protocol::TaskResult& scored, bool misses_stay) {
  const auto notes = nlohmann::json::parse(scored.notes, nullptr, false);
  nlohmann::json kept = nlohmann::json::object();
  if (notes.is_object() && notes.contains("flags")) kept["flags"] = notes["flags"];
  if (notes.is_object() && notes.contains("random_draws") && !misses_stay) {
    kept["counted_as_misses"] = notes["random_draws"];
  }
  return kept.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::vector<Part> parts_of(std::string_view task, std::int64_t seed,
                           std::span<const std::int64_t> documents,
                           std::span<const std::uint64_t> units,
                           std::span<const double> fractions) {
  const auto shuffled = shuffled_units(task, seed, documents, units);
  std::vector<Part> parts;
  std::vector<std::size_t> answered;
  auto unit = shuffled.begin();
  for (const double fraction : fractions) {
    const auto least =
        static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(documents.size())));
    for (; unit != shuffled.end() && answered.size() < least; ++unit) {
      answered.insert(answered.end(), unit->begin(), unit->end());
    }
    if (answered.size() < kFewestForInterim || answered.size() == documents.size()) continue;
    if (!parts.empty() && parts.back().documents.size() == answered.size()) continue;
    Part& part = parts.emplace_back(Part{fraction, answered});
    std::ranges::sort(part.documents);
  }
  return parts;
}

std::vector<std::size_t> stages_of(std::size_t documents, std::span<const Part> parts,
                                   std::span<const double> fractions) {
  std::vector<std::size_t> stages(documents, fractions.size());
  for (const Part& part : parts) {
    const auto stage =
        static_cast<std::size_t>(std::ranges::find(fractions, part.fraction) - fractions.begin());
    for (const std::size_t d : part.documents) stages[d] = std::min(stages[d], stage);
  }
  return stages;
}

Result<protocol::InterimScore> interim_score(const TaskJob& job, const Part& part,
                                             tasks::ScoreOptions options) {
  std::vector<tasks::Response> responses;
  std::vector<std::string> inputs;
  std::vector<std::string> clusters;
  for (const std::size_t d : part.documents) {
    responses.push_back(job.responses[d]);
    inputs.push_back(job.inputs[d]);
    clusters.push_back(std::to_string(job.units[d]));
  }
  const bool misses_stay = options.compat == "strict";
  options.compat = "strict";
  const auto random = tasks::make_python_random(options.seed);  // what it draws is not used
  EVALCAR_ASSIGN_OR_RETURN(const tasks::Scores scores,
                           tasks::score(*job.task, responses, inputs, options, *random));
  protocol::InterimScore score;
  score.task = job.name;
  score.fingerprint = job.fingerprint;
  score.n = scores.result.n;
  score.documents = static_cast<std::int64_t>(job.documents.size());
  score.metrics = scores.result.metrics;
  if (scores.errors_are_of_pairs) {
    EVALCAR_RETURN_IF_ERROR(leave_partial_sums(score, job, part));
  } else {
    cluster_errors(score, scores, clusters);
  }
  score.notes = notes_of(scores.result, misses_stay);
  return score;
}

Status check_fractions(std::span<const double> fractions) {
  double before = 0;
  for (const double fraction : fractions) {
    if (!(fraction > before) || !(fraction < 1)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "interim_at has " + std::to_string(fraction) +
                            ": expected fractions above 0 and below 1, ascending");
    }
    before = fraction;
  }
  return {};
}

}  // namespace evalcar::service
