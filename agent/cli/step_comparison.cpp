#include "agent/cli/step_comparison.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "agent/publish/table.h"
#include "agent/report/comparison.h"
#include "agent/report/sample_score.h"

namespace evalcar::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using state::MetricRow;

constexpr std::size_t kShownFlips = 20;
constexpr std::size_t kShownBytes = 48;  ///< of an answer in the table

/// Task, metric, kind.
using Series = std::tuple<std::string, std::string, std::string>;

void add_flips(OrderedJson& list, const std::vector<report::Flip>& flips, bool right) {
  for (const report::Flip& flip : flips) {
    list.push_back({{"doc_id", flip.doc_id},
                    {"became", right ? "right" : "wrong"},
                    {"score_a", flip.score_a},
                    {"score_b", flip.score_b},
                    {"answer_a", flip.answer_a},
                    {"answer_b", flip.answer_b},
                    {"expected", flip.expected}});
  }
}

OrderedJson numbers_of(const MetricRow& a, const MetricRow& b) {
  OrderedJson json = OrderedJson::object();
  json["run"] = a.run;
  json["checkpoint_type"] = a.checkpoint_type;
  json["task"] = a.task;
  json["metric"] = metric_name(a);
  json["step_a"] = a.step;
  json["step_b"] = b.step;
  json["value_a"] = *a.value;
  json["value_b"] = *b.value;
  json["difference"] = *b.value - *a.value;
  const bool both = a.stderr_value.has_value() && b.stderr_value.has_value();
  json["stderr"] =
      both ? OrderedJson(std::hypot(*a.stderr_value, *b.stderr_value)) : OrderedJson(nullptr);
  json["better"] = *b.value == *a.value ? OrderedJson(nullptr)
                                        : OrderedJson((*b.value > *a.value) == a.higher_is_better);
  json["stderr_of"] = both ? OrderedJson("independent") : OrderedJson(nullptr);
  return json;
}

/// lmms-eval publishes some values rounded to five places.
bool is_published(double of_samples, double value) {
  return std::abs(of_samples - value) <= 1e-5 + 1e-6 * std::abs(value);
}

/// A test of the samples says something of the metric only where it is made of them as they are
/// paired: the sum of MME's categories is not. Nor does one of some of them, where the difference
/// is that of all.
void add_samples(OrderedJson& json, const report::Comparison& samples, double value_a,
                 double value_b) {
  const bool is_theirs =
      is_published(samples.value_a, value_a) && is_published(samples.value_b, value_b);
  const auto& test = is_theirs ? samples.test : std::optional<report::PairedTest>();
  const bool counts = test.has_value() && samples.is_whole;
  json["test"] = counts ? OrderedJson(test->name) : OrderedJson(nullptr);
  json["p"] = counts ? OrderedJson(test->p) : OrderedJson(nullptr);
  json["pairs"] = test.has_value() ? test->n : std::size_t{0};
  json["groups"] = test.has_value() ? test->groups : std::size_t{0};
  if (counts && test->stderr_value.has_value()) {
    json["stderr"] = *test->stderr_value;
    json["stderr_of"] = "pairs";
  }
  json["became_right"] = samples.became_right.size();
  json["became_wrong"] = samples.became_wrong.size();
  json["flipped"] = OrderedJson::array();
  add_flips(json["flipped"], samples.became_right, true);
  add_flips(json["flipped"], samples.became_wrong, false);
  std::string note = samples.untested;
  if (samples.test.has_value() && !is_theirs) {
    note = "no test: the metric is not the mean of what its samples score";
  } else if (!samples.note.empty()) {
    note += (note.empty() ? "" : "; ") + samples.note;
  }
  json["note"] = std::move(note);
}

std::string test_text(const OrderedJson& json) {
  if (!json["test"].is_string()) return json["note"].get<std::string>();
  std::string text = json["test"].get<std::string>() + ", " +
                     std::to_string(json["pairs"].get<std::size_t>()) + " pairs";
  if (json["groups"] != json["pairs"])
    text += " on " + std::to_string(json["groups"].get<std::size_t>()) + " pictures";
  return text;
}

std::string p_text(const OrderedJson& p) {
  if (!p.is_number()) return "";
  std::array<char, 32> text{};
  const auto value = p.get<double>();
  std::snprintf(text.data(), text.size(), value < 0.0001 ? "%.0e" : "%.4f", value);
  return text.data();
}

std::string step_title(const OrderedJson& list, const char* key) {
  return "step " + std::to_string(list[0][key].get<std::int64_t>());
}

std::string series_table(const OrderedJson& list) {
  std::vector<std::vector<std::string>> cells;
  for (const OrderedJson& json : list) {
    std::string difference = publish::format_value(json["difference"].get<double>());
    if (json["difference"].get<double>() > 0) difference = "+" + difference;
    if (json["stderr"].is_number()) {
      difference += " ± " + publish::format_value(json["stderr"].get<double>());
    }
    cells.push_back({json["task"].get<std::string>(), json["metric"].get<std::string>(),
                     json["checkpoint_type"].get<std::string>(),
                     publish::format_value(json["value_a"].get<double>()),
                     publish::format_value(json["value_b"].get<double>()), difference,
                     json["better"].is_null() ? "same"
                     : json["better"]         ? "better"
                                              : "worse",
                     p_text(json["p"]), test_text(json)});
  }
  return publish::markdown_table({"Task", "Metric", "Weights", step_title(list, "step_a"),
                                  step_title(list, "step_b"), "Difference", "", "p", "Test"},
                                 cells,
                                 {false, false, false, true, true, true, false, true, false});
}

std::string flips_table(const OrderedJson& list) {
  std::vector<std::vector<std::string>> cells;
  std::string below;
  const auto shortened = [](const OrderedJson& text) {
    return report::answer_text(nlohmann::json(text.get<std::string>()), kShownBytes);
  };
  for (const OrderedJson& json : list) {
    const std::string task = json["task"].get<std::string>();
    const std::string kind = json["checkpoint_type"].get<std::string>();
    std::size_t shown = 0;
    for (const OrderedJson& flip : json["flipped"]) {
      if (shown++ == kShownFlips) break;
      cells.push_back({task, kind, flip["doc_id"].dump(), flip["became"].get<std::string>(),
                       shortened(flip["answer_a"]), shortened(flip["answer_b"]),
                       shortened(flip["expected"])});
    }
    if (json["flipped"].size() > kShownFlips) {
      below += task + " " + kind + ": " + std::to_string(json["flipped"].size()) +
               " samples flipped; --format json lists all\n";
    }
  }
  if (cells.empty()) return "";
  return "\n" +
         publish::markdown_table({"Task", "Weights", "Doc", "Became", step_title(list, "step_a"),
                                  step_title(list, "step_b"), "Expected"},
                                 cells, {false, false, true, false, false, false, false}) +
         below;
}

bool is_alike(const MetricRow& a, const MetricRow& b) {
  return a.settings_sha256 == b.settings_sha256 && state::is_same_question(a, b);
}

/// Of each series its numbers at two steps, where it has both.
std::map<Series, std::pair<const MetricRow*, const MetricRow*>> pairs_of(
    const std::vector<MetricRow>& rows, std::int64_t step_a, std::int64_t step_b) {
  std::map<Series, std::pair<const MetricRow*, const MetricRow*>> pairs;
  for (const MetricRow& row : rows) {
    if (!row.value.has_value()) continue;
    auto& pair = pairs[{row.task, metric_name(row), row.checkpoint_type}];
    if (row.step == step_a) pair.first = &row;
    if (row.step == step_b) pair.second = &row;
  }
  std::erase_if(pairs, [](const auto& one) {
    return one.second.first == nullptr || one.second.second == nullptr;
  });
  return pairs;
}

}  // namespace

std::string metric_name(const MetricRow& row) {
  return row.filter == "none" ? row.metric : row.metric + "," + row.filter;
}

Result<OrderedJson> compare_steps(const state::Reader& reader, const std::vector<MetricRow>& rows,
                                  std::int64_t step_a, std::int64_t step_b) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [series, pair] : pairs_of(rows, step_a, step_b)) {
    const auto& [a, b] = pair;
    if (!is_alike(*a, *b)) continue;
    EVALCAR_ASSIGN_OR_RETURN(
        const report::Comparison samples,
        report::compare_samples(reader, a->evaluation_id, b->evaluation_id, a->task, a->metric));
    OrderedJson json = numbers_of(*a, *b);
    add_samples(json, samples, *a->value, *b->value);
    list.push_back(std::move(json));
  }
  return list;
}

std::vector<std::string> not_comparable(const std::vector<MetricRow>& rows, std::int64_t step_a,
                                        std::int64_t step_b) {
  std::vector<std::string> names;
  for (const auto& [series, pair] : pairs_of(rows, step_a, step_b)) {
    const auto& [task, metric, kind] = series;
    if (is_alike(*pair.first, *pair.second)) continue;
    names.push_back(task);
    names.back().append(" ").append(metric).append(" ").append(kind);
  }
  return names;
}

std::string comparison_tables(const OrderedJson& list) {
  return list.empty() ? "" : series_table(list) + flips_table(list);
}

void drop_lists(OrderedJson& list) {
  for (OrderedJson& json : list) json.erase("flipped");
}

}  // namespace evalcar::cli
