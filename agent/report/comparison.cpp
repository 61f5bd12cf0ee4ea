#include "agent/report/comparison.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/report/direction.h"
#include "agent/report/sample_part.h"
#include "agent/report/sample_score.h"
#include "store/base/hash.h"

namespace evalcar::report {
namespace {

using Json = nlohmann::json;

/// What is kept of a sample while its partner is looked for.
struct Seen {
  SamplePart part;
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

struct Line {
  std::int64_t doc_id = 0;
  SamplePart part;
  double score = 0;  ///< what counts as right or wrong
  const Json& json;
};

/// Calls take(line) for each sample that tells its part of the metric; gives how many samples there
/// are.
template <typename Take>
Result<std::size_t> each_part(const state::Reader& reader, std::int64_t evaluation,
                              const std::string& task, const std::string& metric,
                              const Take& take) {
  std::size_t samples = 0;
  EVALCAR_RETURN_IF_ERROR(
      reader.for_each_sample(evaluation, task, [&](std::string_view text) -> Status {
        ++samples;
        const Json line = Json::parse(text, nullptr, false);
        const auto part = sample_part(line, metric);
        if (!part.has_value() || !line.contains("doc_id")) return {};
        if (!line["doc_id"].is_number_integer()) return {};
        const double score = sample_score(line, metric).value_or(part->sum / part->weight);
        take(Line{line["doc_id"].get<std::int64_t>(), *part, score, line});
        return {};
      }));
  return samples;
}

/// The metric over the samples of one side.
class Total {
 public:
  explicit Total(Scale scale) : scale_(scale) {}
  void add(const SamplePart& part) {
    sum_ += part.sum;
    weight_ += part.weight;
    ++samples_;
  }
  std::size_t samples() const { return samples_; }
  double value() const { return samples_ == 0 ? 0 : scaled(scale_, sum_ / weight_); }

 private:
  Scale scale_;
  double sum_ = 0, weight_ = 0;
  std::size_t samples_ = 0;
};

/// Numbers for groups of documents about the same pictures; one without pictures is alone.
class Groups {
 public:
  static Result<Groups> of(const state::Reader& reader, std::int64_t evaluation,
                           const std::string& task) {
    Groups groups;
    EVALCAR_RETURN_IF_ERROR(reader.for_each_document_pictures(
        evaluation, task, [&groups](std::int64_t doc, std::string_view pictures) {
          groups.known_.emplace(
              doc, groups.numbers_.emplace(pictures, groups.numbers_.size()).first->second);
        }));
    return groups;
  }
  std::size_t group_of(std::int64_t doc) {
    const auto found = known_.find(doc);
    return found == known_.end() ? numbers_.size() + alone_++ : found->second;
  }

 private:
  std::map<std::string, std::size_t, std::less<>> numbers_;  // by pictures
  std::map<std::int64_t, std::size_t> known_;                // by document
  std::size_t alone_ = 0;
};

/// Why questions cannot be taken for independent of each other although their pictures differ: a
/// column that no sample line has tells which belong together. "" where that is not so.
Result<std::string> why_untested(const state::Reader& reader, std::int64_t a, std::int64_t b,
                                 const std::string& task) {
  for (const std::int64_t evaluation : {b, a}) {
    const auto result = reader.result(evaluation);
    if (!result.has_value() && result.error().code == ErrorCode::kNotFound) continue;
    if (!result.has_value()) return result.error();
    const auto measured = std::ranges::find(result->tasks, task, &protocol::TaskResult::task);
    if (measured == result->tasks.end()) continue;
    const Json config = Json::parse(measured->lmms_config, nullptr, false);
    const auto column = config.is_object() ? config.find("cluster_key") : config.end();
    if (!config.is_object() || column == config.end() || !column->is_string()) return std::string();
    return "no test: questions of one " + column->get<std::string>() +
           " ([columns] cluster) belong together, and the samples do not tell it";
  }
  return std::string("no test while other tasks of both evaluations are being measured");
}

bool is_same_question(const Seen& a, const Line& b) {
  return a.question == question_of(b.json) && a.part.weight == b.part.weight;
}

}  // namespace

Result<Comparison> compare_samples(const state::Reader& reader, std::int64_t a, std::int64_t b,
                                   const std::string& task, const std::string& metric) {
  EVALCAR_ASSIGN_OR_RETURN(const bool more_is_better, higher_is_better(reader, b, task, metric));
  EVALCAR_ASSIGN_OR_RETURN(Groups groups, Groups::of(reader, b, task));
  const Scale scale = scale_of(metric);
  Total total_a(scale), total_b(scale);
  std::map<std::int64_t, Seen> of_a;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::size_t samples_a, each_part(reader, a, task, metric, [&](const Line& line) {
        total_a.add(line.part);
        of_a[line.doc_id] = {line.part, line.score, question_of(line.json), answer_of(line.json)};
      }));
  Comparison comparison;
  std::vector<PairedPart> pairs;
  bool other_questions = false;
  const auto take = [&](const Line& line) {
    total_b.add(line.part);
    const auto partner = of_a.find(line.doc_id);
    if (partner == of_a.end()) return;
    const Seen& before = partner->second;
    if (!is_same_question(before, line)) {
      other_questions = true;
      return;
    }
    pairs.push_back(
        {before.part.sum, line.part.sum, line.part.weight, groups.group_of(line.doc_id)});
    const bool now_right = counts_as_right(line.score, more_is_better);
    if (counts_as_right(before.score, more_is_better) == now_right) return;
    const auto target = line.json.find("target");
    (now_right ? comparison.became_right : comparison.became_wrong)
        .push_back({line.doc_id, before.score, line.score, before.answer, answer_of(line.json),
                    target == line.json.end() ? "" : answer_text(*target, kMostAnswerBytes)});
  };
  EVALCAR_ASSIGN_OR_RETURN(const std::size_t samples_b, each_part(reader, b, task, metric, take));
  comparison.value_a = total_a.value();
  comparison.value_b = total_b.value();
  const std::size_t most = std::max(total_a.samples(), total_b.samples());
  comparison.is_whole = pairs.size() == most;
  if (!pairs.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(comparison.untested, why_untested(reader, a, b, task));
    if (comparison.untested.empty()) comparison.test = paired_test(pairs, scale);
  }
  if (samples_a == 0 || samples_b == 0) {
    comparison.note = "no samples are stored (log_samples is off, or they were pruned)";
  } else if (pairs.empty()) {
    comparison.note = other_questions ? "the two were asked other questions"
                                      : "the samples do not tell this metric";
  } else if (!comparison.is_whole) {
    comparison.note = "only " + std::to_string(pairs.size()) + " samples have a partner";
  }
  return comparison;
}

}  // namespace evalcar::report
