#include "agent/report/comparison.h"

#include <map>
#include <nlohmann/json.hpp>

#include "agent/report/direction.h"
#include "agent/report/sample_score.h"
#include "store/base/hash.h"

namespace evalcar::report {
namespace {

using Json = nlohmann::json;

/// What is kept of a sample while its partner is looked for.
struct Seen {
  double score = 0;
  std::uint64_t question = 0;
  std::string answer;
};

/// Prompt and expected answer as one number: both sides must have asked the same.
std::uint64_t question_of(const Json& line) {
  const auto part = [&line](const char* key) {
    const auto found = line.find(key);
    return found == line.end() ? std::string("-")
                               : found->dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const std::string text = part("input") + '\n' + part("target");
  return xxh3_64(std::as_bytes(std::span(text)));
}

std::string answer_of(const Json& line) {
  const auto found = line.find("filtered_resps");
  return found == line.end() ? "" : answer_text(*found, kMostAnswerBytes);
}

/// Calls take(doc_id, score, line) for each sample that tells its score; gives how many there are.
template <typename Take>
Result<std::size_t> each_score(const state::Reader& reader, std::int64_t evaluation,
                               const std::string& task, const std::string& metric,
                               const Take& take) {
  std::size_t samples = 0;
  EVALCAR_RETURN_IF_ERROR(
      reader.for_each_sample(evaluation, task, [&](std::string_view text) -> Status {
        ++samples;
        const Json line = Json::parse(text, nullptr, false);
        const std::optional<double> score = sample_score(line, metric);
        if (!score.has_value() || !line.contains("doc_id")) return {};
        if (line["doc_id"].is_number_integer())
          take(line["doc_id"].get<std::int64_t>(), *score, line);
        return {};
      }));
  return samples;
}

}  // namespace

Result<Comparison> compare_samples(const state::Reader& reader, std::int64_t a, std::int64_t b,
                                   const std::string& task, const std::string& metric) {
  EVALCAR_ASSIGN_OR_RETURN(const bool more_is_better, higher_is_better(reader, b, task, metric));
  std::map<std::int64_t, Seen> of_a;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::size_t samples_a,
      each_score(reader, a, task, metric, [&](std::int64_t doc, double score, const Json& line) {
        of_a[doc] = {score, question_of(line), answer_of(line)};
      }));
  Comparison comparison;
  std::vector<double> scores_a;
  std::vector<double> scores_b;
  bool other_questions = false;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::size_t samples_b,
      each_score(reader, b, task, metric, [&](std::int64_t doc, double score, const Json& line) {
        const auto partner = of_a.find(doc);
        if (partner == of_a.end()) return;
        if (partner->second.question != question_of(line)) {
          other_questions = true;
          return;
        }
        scores_a.push_back(partner->second.score);
        scores_b.push_back(score);
        const bool now_right = counts_as_right(score, more_is_better);
        if (counts_as_right(partner->second.score, more_is_better) == now_right) return;
        const auto target = line.find("target");
        (now_right ? comparison.became_right : comparison.became_wrong)
            .push_back({doc, partner->second.score, score, partner->second.answer, answer_of(line),
                        target == line.end() ? "" : answer_text(*target, kMostAnswerBytes)});
      }));
  if (!scores_a.empty()) comparison.test = paired_test(scores_a, scores_b);
  if (samples_a == 0 || samples_b == 0) {
    comparison.note = "no samples are stored (log_samples is off, or they were pruned)";
  } else if (scores_a.empty()) {
    comparison.note = other_questions ? "the two were asked other questions"
                                      : "the samples do not tell this metric";
  } else if (scores_a.size() < std::max(samples_a, samples_b)) {
    comparison.note = "only " + std::to_string(scores_a.size()) + " samples have a partner";
  }
  return comparison;
}

}  // namespace evalcar::report
