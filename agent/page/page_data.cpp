#include "agent/page/page_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/page/json_text.h"

namespace evalcar::page {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr publish::StatusMost kMost = {.ended = 300};
constexpr publish::StatusMost kMostLive = {.ended = 50, .open = 100};  ///< told every few seconds

Result<std::int64_t> id_of(const state::Reader& reader, const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto found = std::ranges::find(runs, run, &state::Run::name);
  if (found == runs.end()) return make_error(ErrorCode::kNotFound, "no run named " + run);
  return found->id;
}

std::string with_numbers(const OrderedJson& document, const std::string& metrics) {
  std::string text = text_of(document);
  text.back() = ',';
  return text + "\"metrics\":" + metrics + "}";
}

/// Without the metrics.
OrderedJson head_of(const std::string& run, bool live, const std::string& status) {
  return {{"run", run}, {"live", live}, {"status", OrderedJson::parse(status, nullptr, false)}};
}

}  // namespace

Result<std::string> page_data(const state::Reader& reader, const Clock& clock,
                              const std::string& run,
                              const std::optional<publish::AgentFacts>& agent, bool live) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t id, id_of(reader, run));
  EVALCAR_ASSIGN_OR_RETURN(const std::string status,
                           publish::status_json(reader, clock, std::optional(id), agent, kMost));
  LiveNumbers numbers;
  EVALCAR_RETURN_IF_ERROR(numbers.read(reader, clock, run));
  bool only_news = false;
  return with_numbers(head_of(run, live, status), numbers.text("", only_news));
}

Status LiveDocument::read_numbers(const state::Reader& reader, const Clock& clock) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, reader.data_version());
  if (version == data_version_) return {};
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t seen, reader.numbers_version(*run_id_));
  if (seen_ != seen) {
    EVALCAR_RETURN_IF_ERROR(numbers_.read(reader, clock, run_));
    ++readings_;
    seen_ = seen;
  }
  data_version_ = version;
  return {};
}

Result<std::string> LiveDocument::text(const state::Reader& reader, const Clock& clock,
                                       const std::optional<publish::AgentFacts>& agent,
                                       const Wish& wish) {
  if (!run_id_.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(run_id_, id_of(reader, run_));
  }
  EVALCAR_RETURN_IF_ERROR(rows_.refresh(reader, run_id_, kMostLive));
  EVALCAR_ASSIGN_OR_RETURN(const std::string status,
                           publish::status_json(reader, clock, agent, rows_));
  EVALCAR_RETURN_IF_ERROR(read_numbers(reader, clock));
  OrderedJson document = head_of(run_, true, status);
  document["runs"] = wish.runs;
  document["version"] = numbers_.version();
  if (!wish.with_metrics) return text_of(document);
  bool only_news = false;
  const std::string metrics = numbers_.text(wish.since, only_news);
  if (only_news) document["since"] = wish.since;
  return with_numbers(document, metrics);
}

}  // namespace evalcar::page
