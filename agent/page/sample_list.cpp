#include "agent/page/sample_list.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "agent/report/comparison.h"
#include "agent/report/direction.h"
#include "agent/report/sample_score.h"

namespace evalcar::page {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Line = nlohmann::json;

constexpr std::size_t kMostPromptBytes = 8'000;
constexpr std::size_t kMostAnswerBytes = 2'000;

std::string line_text(const Line& line, const char* key, std::size_t most_bytes) {
  const auto found = line.find(key);
  return found == line.end() ? "" : report::answer_text(*found, most_bytes);
}

/// The evaluation that gave the number of the step before, of the same kind, task and metric, with
/// the same settings and of the same question; what a job asked for besides is held against the
/// run's own.
Result<std::optional<state::MetricRow>> row_before(const state::Reader& reader,
                                                   const SampleQuery& query,
                                                   const state::Evaluation& now) {
  state::MetricFilter filter;
  filter.run = query.run;
  filter.task = query.task;
  filter.metric = query.metric;
  filter.checkpoint_type = now.kind;
  std::vector<state::MetricRow> earlier;  // by step, as they come
  std::optional<state::MetricRow> own;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(filter, [&](const state::MetricRow& row) {
    const bool alike =
        now.settings.requested != 0 ? row.configured : row.settings_sha256 == now.settings_sha256;
    if (alike && row.step < now.step && row.value.has_value()) earlier.push_back(row);
    if (row.evaluation_id == now.id) own = row;
  }));
  const auto before = std::find_if(earlier.rbegin(), earlier.rend(), [&own](const auto& row) {
    return !own.has_value() || state::is_same_question(row, *own);
  });
  return before == earlier.rend() ? std::nullopt : std::optional(*before);
}

/// Which documents flipped, and what was answered before.
struct Flips {
  std::optional<std::int64_t> step;
  std::string note;
  std::map<std::int64_t, report::Flip> of;  ///< by doc_id
};

Result<Flips> flips_of(const state::Reader& reader, const SampleQuery& query,
                       const state::Evaluation& now) {
  Flips flips;
  EVALCAR_ASSIGN_OR_RETURN(const auto before, row_before(reader, query, now));
  if (!before.has_value()) {
    flips.note = "no earlier step has a number";
    return flips;
  }
  flips.step = before->step;
  EVALCAR_ASSIGN_OR_RETURN(
      auto compared,
      report::compare_samples(reader, before->evaluation_id, now.id, query.task, query.metric));
  flips.note = std::move(compared.note);
  for (auto* const list : {&compared.became_right, &compared.became_wrong}) {
    for (report::Flip& flip : *list) flips.of.emplace(flip.doc_id, std::move(flip));
  }
  return flips;
}

OrderedJson sample_json(const Line& line, std::int64_t doc, const std::optional<double>& score,
                        const std::optional<bool>& right, const report::Flip* flip) {
  OrderedJson json = {{"doc_id", doc},
                      {"score", score.has_value() ? OrderedJson(*score) : OrderedJson(nullptr)},
                      {"right", right.has_value() ? OrderedJson(*right) : OrderedJson(nullptr)},
                      {"prompt", line_text(line, "input", kMostPromptBytes)},
                      {"answer", line_text(line, "filtered_resps", kMostAnswerBytes)},
                      {"expected", line_text(line, "target", kMostAnswerBytes)}};
  if (flip == nullptr) return json;
  json["answer_before"] = flip->answer_a;
  json["score_before"] = flip->score_a;
  return json;
}

/// Of those that are shown alone.
Status add_pictures(const state::Reader& reader, const SampleQuery& query,
                    const SamplePictures& pictures, OrderedJson& samples) {
  for (OrderedJson& sample : samples) {
    EVALCAR_ASSIGN_OR_RETURN(
        const std::vector<std::string> names,
        reader.sample_pictures(query.evaluation, query.task, sample["doc_id"].get<std::int64_t>()));
    for (const std::string& name : names) {
      sample["pictures"].push_back({{"name", name}, {"kept", pictures.has(name)}});
    }
  }
  return {};
}

}  // namespace

Result<std::string> sample_list(const state::Reader& reader, const SampleQuery& query,
                                const SamplePictures& pictures) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation now, reader.evaluation(query.evaluation));
  if (now.run != query.run) return make_error(ErrorCode::kNotFound, "it is of another run");
  Flips flips;
  const bool only_flipped = query.filter == SampleFilter::kFlipped;
  if (only_flipped) {
    EVALCAR_ASSIGN_OR_RETURN(flips, flips_of(reader, query, now));
  }
  EVALCAR_ASSIGN_OR_RETURN(const bool more_is_better,
                           report::higher_is_better(reader, now.id, query.task, query.metric));
  std::int64_t total = 0;
  std::int64_t matching = 0;
  OrderedJson samples = OrderedJson::array();
  const std::int64_t end = query.offset + std::clamp<std::int64_t>(query.limit, 1, kMostSamples);
  EVALCAR_RETURN_IF_ERROR(
      reader.for_each_sample(now.id, query.task, [&](std::string_view text) -> Status {
        ++total;
        const Line line = Line::parse(text, nullptr, false);
        if (!line.is_object() || !line.contains("doc_id")) return {};
        if (!line["doc_id"].is_number_integer()) return {};
        const auto doc = line["doc_id"].get<std::int64_t>();
        const auto score = report::sample_score(line, query.metric);
        const auto flip = flips.of.find(doc);
        std::optional<bool> right;
        if (score.has_value()) right = report::counts_as_right(*score, more_is_better);
        if (query.filter == SampleFilter::kWrong && right.value_or(true)) return {};
        if (only_flipped && flip == flips.of.end()) return {};
        const bool shown = matching >= query.offset && matching < end;
        ++matching;
        if (shown) {
          samples.push_back(sample_json(line, doc, score, right,
                                        flip == flips.of.end() ? nullptr : &flip->second));
        }
        return {};
      }));
  EVALCAR_RETURN_IF_ERROR(add_pictures(reader, query, pictures, samples));
  std::string note = flips.note;
  if (total == 0) note = "no samples are stored (log_samples is off, or they were pruned)";
  const OrderedJson document = {
      {"evaluation", now.id},
      {"step", now.step},
      {"checkpoint_type", now.kind},
      {"task", query.task},
      {"metric", query.metric},
      {"total", total},
      {"matching", matching},
      {"offset", query.offset},
      {"before", flips.step.has_value() ? OrderedJson(*flips.step) : OrderedJson(nullptr)},
      {"note", note},
      {"samples", std::move(samples)}};
  return document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace evalcar::page
