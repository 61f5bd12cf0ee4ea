#include "agent/publish/status.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "agent/publish/utc.h"

namespace evalcar::publish {
namespace {

using OrderedJson = nlohmann::ordered_json;
using state::Evaluation;

constexpr StatusMost kMostOfHeartbeat = {.ended = 300, .open = 100};

OrderedJson current_json(const CurrentFacts& current) {
  const report::WorkDone& work = current.work;
  OrderedJson json = OrderedJson::object();
  json["evaluation_id"] = current.evaluation_id;
  json["step"] = current.step;
  json["checkpoint_type"] = current.checkpoint_type;
  json["stage"] = work.stage;
  json["task"] = work.task.empty() ? OrderedJson(nullptr) : OrderedJson(work.task);
  json["done"] = work.done;
  json["total"] = work.total;
  json["per_second"] =
      work.per_second.has_value() ? OrderedJson(*work.per_second) : OrderedJson(nullptr);
  json["seconds_left"] =
      work.seconds_left.has_value() ? OrderedJson(*work.seconds_left) : OrderedJson(nullptr);
  return json;
}

OrderedJson agent_json(const std::optional<AgentFacts>& agent) {
  if (!agent.has_value()) return nullptr;
  OrderedJson json = OrderedJson::object();
  json["pid"] = agent->pid;
  json["state"] = agent->exit_code.has_value() ? "ended" : "running";
  if (agent->exit_code.has_value()) json["exit_code"] = *agent->exit_code;
  json["version"] = agent->version;
  json["uptime_s"] = agent->uptime_s;
  if (!agent->device.empty()) json["device"] = agent->device;
  if (!agent->warning.empty()) json["warning"] = agent->warning;
  if (agent->busy) json["busy"] = true;
  if (!agent->pinned.empty()) json["pinned"] = agent->pinned;
  if (agent->keep_best.has_value()) {
    json["keep_best"] = *agent->keep_best;
    json["metric_for_best_model"] = agent->metric_for_best_model;
  }
  if (agent->watching.has_value()) {
    const WatchFacts& watching = *agent->watching;
    json["watching"] = {{"file_system", watching.file_system},
                        {"mode", watching.mode},
                        {"poll_interval_s", watching.poll_interval_s}};
    if (!watching.trouble.empty()) json["watching"]["trouble"] = watching.trouble;
  }
  if (agent->current.has_value()) json["current"] = current_json(*agent->current);
  return json;
}

OrderedJson evaluation_json(const Evaluation& evaluation) {
  OrderedJson json = OrderedJson::object();
  json["step"] = evaluation.step;
  json["checkpoint_type"] = evaluation.kind;
  json["state"] = state::state_name(evaluation.state);
  json["reason"] =
      evaluation.reason.empty() ? OrderedJson(nullptr) : OrderedJson(evaluation.reason);
  json["progress"] = evaluation.progress();
  json["run"] = evaluation.run;
  json["checkpoint"] = evaluation.checkpoint;
  json["generation"] = evaluation.generation;
  json["evaluation_id"] = evaluation.id;
  json["tasks"] = evaluation.settings.tasks;
  if (evaluation.settings.requested != 0) json["requested"] = true;
  json["stage"] = evaluation.stage.empty() ? OrderedJson(nullptr) : OrderedJson(evaluation.stage);
  json["attempts"] = evaluation.attempts;
  if (!evaluation.next_try_at.empty()) json["next_try_at"] = evaluation.next_try_at;
  if (!evaluation.weights_sha256.empty()) json["weights_sha256"] = evaluation.weights_sha256;
  json["updated_at"] = evaluation.updated_at;
  return json;
}

/// What the lag is computed of, and which are listed.
struct Mark {
  std::int64_t id = 0;
  std::int64_t step = 0;
  state::EvaluationState state = state::EvaluationState::kFound;
  WallTime created;       ///< of those that have not ended
  bool in_series = true;  ///< not asked for besides, which is no number of the step's
};

/// The newest step that is still asked about: its folder is there, or its evaluation goes on (a
/// lease outlives the folder).
Result<std::optional<std::int64_t>> newest_step(const state::Reader& reader,
                                                std::optional<std::int64_t> run_id,
                                                const std::optional<AgentFacts>& agent,
                                                const std::vector<Mark>& marks) {
  std::optional<std::int64_t> newest = agent.has_value() ? agent->latest_step : std::nullopt;
  const auto note = [&newest](std::int64_t step) {
    newest = std::max(newest.value_or(step), step);
  };
  for (const Mark& mark : marks) {
    if (!state::is_end_state(mark.state) && mark.in_series) note(mark.step);
  }
  if (!run_id.has_value()) return newest;
  EVALCAR_ASSIGN_OR_RETURN(const auto there, reader.newest_step_there(*run_id));
  if (there.has_value()) note(*there);
  return newest;
}

/// The newest step up to `newest` with a number (the trainer may have gone back); 0 before the
/// first.
std::int64_t newest_number(std::int64_t newest, const std::vector<Mark>& marks) {
  std::int64_t done = 0;
  for (const Mark& mark : marks) {
    const bool counts = mark.state == state::EvaluationState::kPublished && mark.step <= newest;
    if (counts && mark.in_series) done = std::max(done, mark.step);
  }
  return done;
}

/// How long the oldest evaluation has been known that waits beyond the newest number.
double lag_seconds(std::int64_t number, const std::vector<Mark>& marks, WallTime now) {
  WallTime oldest = now;
  for (const Mark& mark : marks) {
    if (state::is_end_state(mark.state) || mark.step <= number || !mark.in_series) continue;
    oldest = std::min(oldest, mark.created);
  }
  return std::chrono::duration<double>(now - oldest).count();
}

bool runs(state::EvaluationState state) {
  using enum state::EvaluationState;
  return state == kLoading || state == kEvaluating || state == kScored;
}

/// Which of all a document lists.
struct Listed {
  std::vector<std::int64_t> ids;
  std::size_t left_out = 0;
  std::size_t open_left_out = 0;
};

/// `marks`: of all.
Listed listed_of(std::vector<Mark> marks, const StatusMost& most) {
  const auto waits = [](const Mark& mark) {
    return !state::is_end_state(mark.state) && !runs(mark.state);
  };
  std::map<std::int64_t, std::size_t, std::greater<>> waiting;  // by step
  for (const Mark& mark : marks) {
    if (waits(mark)) ++waiting[mark.step];
  }
  std::set<std::int64_t> left_out;  // steps
  std::size_t room = most.open;
  for (const auto& [step, count] : waiting) {
    if (count > room) left_out.insert(step);
    room -= std::min(room, count);  // where one found no room, none is left for lower steps
  }
  std::ranges::sort(marks, std::greater<>(),
                    [](const Mark& mark) { return std::pair(mark.step, mark.id); });
  Listed listed;
  std::size_t ended = 0;
  for (const Mark& mark : marks) {
    const bool over = state::is_end_state(mark.state);
    const bool fits = !over || ended < most.ended;
    const bool told = runs(mark.state) || (fits && !left_out.contains(mark.step));
    if (told) listed.ids.push_back(mark.id);
    if (told && over) ++ended;
    if (!told) ++listed.left_out;
    if (!told && !over) ++listed.open_left_out;
  }
  return listed;
}

Result<OrderedJson> evaluations_json(const state::Reader& reader,
                                     std::optional<std::int64_t> run_id, const Listed& listed) {
  OrderedJson list = OrderedJson::array();
  if (listed.ids.empty()) return list;
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  if (listed.left_out > 0) filter.ids = listed.ids;
  EVALCAR_ASSIGN_OR_RETURN(const auto flags, reader.flags(run_id));
  EVALCAR_RETURN_IF_ERROR(reader.for_each_evaluation(filter, [&](const Evaluation& row) {
    list.push_back(evaluation_json(row));
    if (const auto doubts = flags.find(row.id); doubts != flags.end()) {
      list.back()["flags"] = doubts->second;
    }
  }));
  return list;
}

/// How many there are of each state that any is in.
OrderedJson states_json(const std::vector<Mark>& marks) {
  std::map<state::EvaluationState, std::size_t> counts;
  for (const Mark& mark : marks) ++counts[mark.state];
  OrderedJson json = OrderedJson::object();
  for (const auto& [state, count] : counts) json[std::string(state::state_name(state))] = count;
  return json;
}

/// As the value of a member of a document that is indented by two.
std::string member_text(const OrderedJson& value) {
  std::string text;
  for (const char c : value.dump(2, ' ', false, OrderedJson::error_handler_t::replace)) {
    text += c;
    if (c == '\n') text += "  ";  // one within a string is escaped
  }
  return text;
}

/// A document whose members are written one by one, so that one may be a text that is kept.
class Document {
 public:
  void add(const char* name, const OrderedJson& value) { add_text(name, member_text(value)); }
  void add_text(const char* name, const std::string& text) {
    text_.append(text_.empty() ? "{" : ",")
        .append("\n  \"")
        .append(name)
        .append("\": ")
        .append(text);
  }
  std::string text() const { return text_ + "\n}\n"; }

 private:
  std::string text_;
};

}  // namespace

std::string empty_status_json(const Clock& clock) {
  const OrderedJson root = {{"agent", nullptr},
                            {"evaluations", OrderedJson::array()},
                            {"states", OrderedJson::object()},
                            {"lag_steps", nullptr},
                            {"lag_seconds", nullptr},
                            {"time", format_utc(clock.wall_now())}};
  return root.dump(2) + "\n";
}

struct StatusRows::Content {
  std::optional<std::int64_t> run_id;
  std::int64_t changes = -1;  ///< Reader::changes() when it was read
  std::int64_t data_version = -1;
  std::vector<Mark> marks;
  Listed listed;
  std::string list;  ///< the text of "evaluations", as it stands in the document
};

StatusRows::StatusRows() : content_(std::make_unique<Content>()) {}
StatusRows::~StatusRows() = default;

Status StatusRows::refresh(const state::Reader& reader, std::optional<std::int64_t> run_id,
                           const StatusMost& most) {
  const std::int64_t changes = reader.changes();
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, reader.data_version());
  const bool same = content_->changes == changes && content_->data_version == version;
  if (same && content_->run_id == run_id) return {};
  Content now;
  now.run_id = run_id;
  EVALCAR_RETURN_IF_ERROR(
      reader.for_each_standing({.run_id = run_id}, [&now](const state::Standing& row) {
        const bool over = state::is_end_state(row.state);
        now.marks.push_back({row.id, row.step, row.state,
                             over ? WallTime() : parse_utc(row.created_at),
                             row.settings.requested == 0});
      }));
  now.listed = listed_of(now.marks, most);
  EVALCAR_ASSIGN_OR_RETURN(const OrderedJson list, evaluations_json(reader, run_id, now.listed));
  now.list = member_text(list);
  now.changes = changes;
  now.data_version = version;
  *content_ = std::move(now);
  return {};
}

namespace {

Result<std::string> json_of(const state::Reader& reader, const Clock& clock,
                            const std::optional<AgentFacts>& agent,
                            const StatusRows::Content& rows) {
  Document root;
  root.add("agent", agent_json(agent));
  root.add_text("evaluations", rows.list);
  if (rows.listed.left_out > 0) root.add("evaluations_left_out", rows.listed.left_out);
  if (rows.listed.open_left_out > 0) root.add("open_left_out", rows.listed.open_left_out);
  root.add("states", states_json(rows.marks));
  EVALCAR_ASSIGN_OR_RETURN(const auto newest, newest_step(reader, rows.run_id, agent, rows.marks));
  const bool unknown = rows.marks.empty() && !newest.has_value();
  const std::int64_t number = newest.has_value() ? newest_number(*newest, rows.marks) : 0;
  root.add("lag_steps",
           unknown ? OrderedJson(nullptr) : OrderedJson(newest.has_value() ? *newest - number : 0));
  root.add("lag_seconds", unknown ? OrderedJson(nullptr)
                                  : OrderedJson(lag_seconds(number, rows.marks, clock.wall_now())));
  root.add("time", format_utc(clock.wall_now()));
  return root.text();
}

}  // namespace

Result<std::string> status_json(const state::Reader& reader, const Clock& clock,
                                std::optional<std::int64_t> run_id,
                                const std::optional<AgentFacts>& agent, const StatusMost& most) {
  StatusRows rows;
  EVALCAR_RETURN_IF_ERROR(rows.refresh(reader, run_id, most));
  return json_of(reader, clock, agent, rows.content());
}

Result<std::string> status_json(const state::Reader& reader, const Clock& clock,
                                const std::optional<AgentFacts>& agent, const StatusRows& rows) {
  return json_of(reader, clock, agent, rows.content());
}

Status write_status(FileSystem& files, const state::Reader& reader, const Clock& clock,
                    const std::string& path, std::optional<std::int64_t> run_id,
                    const AgentFacts& agent, StatusRows& rows) {
  EVALCAR_RETURN_IF_ERROR(rows.refresh(reader, run_id, kMostOfHeartbeat));
  EVALCAR_ASSIGN_OR_RETURN(const std::string json, json_of(reader, clock, agent, rows.content()));
  return write_file_atomically(files, path, json);
}

}  // namespace evalcar::publish
