#include "agent/publish/prometheus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/publish/utc.h"
#include "store/base/file_system.h"
#include "store/base/text.h"

namespace evalcar::publish {
namespace {

using state::Evaluation;
using state::EvaluationState;
using state::MetricRow;
using Labels = std::vector<std::pair<std::string, std::string>>;

/// A label's text: one that is no UTF-8, or holds control characters, would make Prometheus refuse
/// all of the page. Different bytes stay different texts.
std::string label_text(std::string_view value) {
  std::string text;
  while (true) {
    const std::size_t end = value.find('\n');
    for (const char c : printable(value.substr(0, end))) {
      if (c == '\\' || c == '"') text.push_back('\\');
      text.push_back(c);
    }
    if (end == std::string_view::npos) return text;
    text += "\\n";
    value.remove_prefix(end + 1);
  }
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

/// Families in the order of their first sample; all samples of a family stand together.
class Page {
 public:
  void family(const std::string& name, const char* type, const char* help) {
    const auto known = std::ranges::find(families_, name, &Family::name);
    current_ = static_cast<std::size_t>(known - families_.begin());
    if (known != families_.end()) return;
    families_.push_back(
        {name, "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n", ""});
  }
  /// Of the family that was named last; `suffix`: "_sum" of a summary.
  void sample(const Labels& labels, double value, const std::string& suffix = "") {
    Family& family = families_[current_];
    std::string line = family.name + suffix;
    std::string inside;
    for (const auto& [key, text] : labels) {
      inside += (inside.empty() ? "" : ",") + key + "=\"" + label_text(text) + "\"";
    }
    if (!inside.empty()) line += "{" + inside + "}";
    family.samples += line + " " + number(value) + "\n";
  }
  /// The other one's samples, after those that are here.
  void append(const Page& other) {
    for (const Family& more : other.families_) {
      const auto known = std::ranges::find(families_, more.name, &Family::name);
      if (known == families_.end()) {
        families_.push_back(more);
        continue;
      }
      known->samples += more.samples;
    }
  }
  std::string text() const {
    std::string all;
    for (const Family& family : families_) {
      if (!family.samples.empty()) all += family.head + family.samples;
    }
    return all;
  }

 private:
  struct Family {
    std::string name;
    std::string head;
    std::string samples;
  };
  std::vector<Family> families_;
  std::size_t current_ = 0;
};

constexpr std::array kStates = {
    EvaluationState::kFound,     EvaluationState::kComplete,   EvaluationState::kLeased,
    EvaluationState::kLoading,   EvaluationState::kEvaluating, EvaluationState::kScored,
    EvaluationState::kPublished, EvaluationState::kFailed,     EvaluationState::kQuarantined,
    EvaluationState::kSkipped,   EvaluationState::kSuperseded, EvaluationState::kLost};

void add_agent(Page& page, const std::optional<AgentFacts>& agent) {
  page.family("evalcar_agent_running", "gauge", "Whether an agent has the database.");
  page.sample({}, agent.has_value() ? 1 : 0);
  if (!agent.has_value()) return;
  page.family("evalcar_build_info", "gauge", "The agent's version and device.");
  page.sample({{"version", agent->version}, {"device", agent->device}}, 1);
  page.family("evalcar_agent_uptime_seconds", "gauge", "Since the agent started.");
  page.sample({}, agent->uptime_s);
  page.family("evalcar_agent_warning", "gauge", "Whether the agent warns of something.");
  page.sample({}, agent->warning.empty() ? 0 : 1);
}

/// What is evaluated now, of whichever run it is.
void add_current(Page& page, const std::optional<AgentFacts>& agent, const std::string& run) {
  if (!agent.has_value() || !agent->current.has_value()) return;
  const CurrentFacts& current = *agent->current;
  const Labels labels = {
      {"run", run}, {"checkpoint_type", current.checkpoint_type}, {"stage", current.work.stage}};
  page.family("evalcar_current_step", "gauge", "The step that is evaluated now.");
  page.sample(labels, static_cast<double>(current.step));
  if (current.work.total > 0) {
    page.family("evalcar_current_progress_ratio", "gauge",
                "How much of its stage is done, 0 to 1.");
    page.sample(labels,
                static_cast<double>(current.work.done) / static_cast<double>(current.work.total));
  }
  if (current.work.seconds_left.has_value()) {
    page.family("evalcar_current_remaining_seconds", "gauge", "Expected until its stage ends.");
    page.sample(labels, *current.work.seconds_left);
  }
}

/// One agent has all of them: it warns if any of them does.
std::optional<AgentFacts> agent_of(const std::vector<PrometheusSource>& sources) {
  std::optional<AgentFacts> agent;
  for (const PrometheusSource& source : sources) {
    if (!source.agent.has_value()) continue;
    if (!agent.has_value()) agent = source.agent;
    if (agent->warning.empty()) agent->warning = source.agent->warning;
  }
  return agent;
}

/// What status says of the lag, so that both say the same.
Status add_lag(Page& page, const state::Reader& reader, const Clock& clock, std::int64_t run_id,
               const Labels& run, const std::optional<AgentFacts>& agent) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string document,
                           status_json(reader, clock, run_id, agent, {.ended = 0, .open = 0}));
  const auto status = nlohmann::json::parse(document, nullptr, false);
  if (status["lag_steps"].is_number()) {
    page.family("evalcar_lag_steps", "gauge",
                "Steps between the newest checkpoint and the newest number.");
    page.sample(run, status["lag_steps"].get<double>());
  }
  if (status["lag_seconds"].is_number()) {
    page.family("evalcar_lag_seconds", "gauge", "Age of the oldest evaluation that waits.");
    page.sample(run, status["lag_seconds"].get<double>());
  }
  return {};
}

Status add_evaluations(Page& page, const state::Reader& reader, std::int64_t run_id,
                       const Labels& run) {
  std::map<EvaluationState, std::int64_t> states;
  std::map<std::string, std::pair<double, double>> durations;  // of a kind: seconds, how many
  std::int64_t attempts = 0;
  std::string last;
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_evaluation(filter, [&](const Evaluation& row) {
    ++states[row.state];
    attempts += row.attempts;
    // What was asked for besides is no number of the series.
    if (row.state != EvaluationState::kPublished || row.settings.requested != 0) return;
    durations[row.kind].first += row.seconds;
    durations[row.kind].second += 1;
    last = std::max(last, row.finished_at);
  }));
  const auto with = [&run](const char* key, std::string value) {
    Labels labels = run;
    labels.emplace_back(key, std::move(value));
    return labels;
  };
  page.family("evalcar_evaluations", "gauge", "Evaluations by their state.");
  for (const EvaluationState state : kStates) {
    page.sample(with("state", std::string(state::state_name(state))),
                static_cast<double>(states[state]));
  }
  page.family("evalcar_attempts_total", "counter", "Attempts that were started.");
  page.sample(run, static_cast<double>(attempts));
  page.family(
      "evalcar_evaluation_duration_seconds", "summary",
      "What published evaluations took after loading; those that were resumed, since then.");
  for (const auto& [kind, duration] : durations) {
    page.sample(with("checkpoint_type", kind), duration.first, "_sum");
    page.sample(with("checkpoint_type", kind), duration.second, "_count");
  }
  if (!last.empty()) {
    page.family("evalcar_last_result_timestamp_seconds", "gauge", "When the last number was made.");
    page.sample(run, static_cast<double>(parse_utc(last).time_since_epoch().count()) / 1e6);
  }
  return {};
}

/// The latest and the best row of a series.
struct Series {
  MetricRow latest;
  MetricRow best;
};

Status add_scores(Page& page, const state::Reader& reader, const std::string& run) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Series> all;
  state::MetricFilter filter;
  filter.run = run;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(filter, [&](const MetricRow& row) {  // by step
    if (!row.value.has_value() || !row.configured) return;
    const auto [found, is_new] =
        all.try_emplace({row.task, row.metric, row.filter, row.checkpoint_type});
    Series& series = found->second;
    series.latest = row;
    const bool better = is_new || (row.higher_is_better ? *row.value > *series.best.value
                                                        : *row.value < *series.best.value);
    if (better) series.best = row;
  }));
  const auto each = [&](const char* name, const char* help, const auto& value_of) {
    page.family(name, "gauge", help);
    for (const auto& [key, series] : all) {
      const std::optional<double> value = value_of(series);
      if (!value.has_value()) continue;
      page.sample({{"run", run},
                   {"task", series.latest.task},
                   {"metric", series.latest.metric},
                   {"filter", series.latest.filter},
                   {"checkpoint_type", series.latest.checkpoint_type}},
                  *value);
    }
  };
  using Value = std::optional<double>;
  each("evalcar_score", "The latest number.",
       [](const Series& s) -> Value { return s.latest.value; });
  each("evalcar_score_stderr", "Its standard error.",
       [](const Series& s) -> Value { return s.latest.stderr_value; });
  each("evalcar_score_step", "The step that it is of.",
       [](const Series& s) -> Value { return static_cast<double>(s.latest.step); });
  each("evalcar_score_samples", "The samples that it is of.",
       [](const Series& s) -> Value { return static_cast<double>(s.latest.n); });
  each("evalcar_best_score", "The best number so far.",
       [](const Series& s) -> Value { return s.best.value; });
  each("evalcar_best_score_step", "The step of the best number.",
       [](const Series& s) -> Value { return static_cast<double>(s.best.step); });
  return {};
}

constexpr const char* kUp = "Whether the numbers of the run can be read; 0: it has no others.";

/// All that a database says of its newest run; nothing before it has one.
Status add_run(Page& page, const PrometheusSource& source, const Clock& clock) {
  const state::Reader& reader = *source.reader;
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  if (runs.empty()) return {};
  const state::Run& newest = runs.back();
  const Labels run = {{"run", newest.name}};
  page.family("evalcar_up", "gauge", kUp);
  page.sample(run, 1);
  add_current(page, source.agent, newest.name);
  EVALCAR_RETURN_IF_ERROR(add_lag(page, reader, clock, newest.id, run, source.agent));
  EVALCAR_RETURN_IF_ERROR(add_evaluations(page, reader, newest.id, run));
  return add_scores(page, reader, newest.name);
}

/// Of a run that cannot be read: its name, else its database's, which begins it.
Page unreadable(const PrometheusSource& source) {
  Page page;
  page.family("evalcar_up", "gauge", kUp);
  const std::string file = base_name(source.database);
  const std::string run = source.run.empty() ? file.substr(0, file.rfind(".db")) : source.run;
  page.sample({{"run", run}}, 0);
  add_current(page, source.agent, run);
  return page;
}

}  // namespace

std::string prometheus_text(const std::vector<PrometheusSource>& sources, const Clock& clock) {
  Page page;
  add_agent(page, agent_of(sources));
  for (const PrometheusSource& source : sources) {
    Page part;
    Status told;
    if (source.reader != nullptr) told = add_run(part, source, clock);
    if (!told.has_value() && source.failed) source.failed(told.error());
    page.append(source.reader == nullptr || !told.has_value() ? unreadable(source) : part);
  }
  return page.text();
}

}  // namespace evalcar::publish
