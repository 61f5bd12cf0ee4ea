#include "agent/page/live_numbers.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "agent/page/json_text.h"
#include "store/base/hash.h"

namespace evalcar::page {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson optional_json(const std::optional<double>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson(nullptr);
}

}  // namespace

std::string row_text(const state::MetricRow& row) {
  OrderedJson json = {{"step", row.step},
                      {"checkpoint_type", row.checkpoint_type},
                      {"task", row.task},
                      {"metric", row.metric},
                      {"filter", row.filter},
                      {"value", optional_json(row.value)},
                      {"stderr", optional_json(row.stderr_value)},
                      {"n", row.n},
                      {"missing", row.missing},
                      {"higher_is_better", row.higher_is_better},
                      {"evaluation", row.evaluation_id}};
  if (!row.configured) json["configured"] = false;
  return text_of(json);
}

std::string row_key(const state::MetricRow& row) {
  return text_of(
      OrderedJson::array({row.step, row.checkpoint_type, row.task, row.metric, row.filter}));
}

Status LiveNumbers::read(const state::Reader& reader, const Clock& clock, const std::string& run) {
  std::unordered_map<std::string_view, const Row*> before;
  before.reserve(rows_.size());
  for (const Row& row : rows_) before.emplace(row.key, &row);
  std::vector<Row> now;
  std::size_t known = 0;
  bool any = false;
  state::MetricFilter filter;
  filter.run = run;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(filter, [&](const state::MetricRow& metric) {
    Row row{row_key(metric), row_text(metric), change_ + 1};
    const auto found = before.find(row.key);
    if (found != before.end()) {
      ++known;
      if (found->second->json == row.json) row.changed = found->second->changed;
    }
    any = any || row.changed == change_ + 1;
    now.push_back(std::move(row));
  }));
  const bool removed = known < rows_.size();
  before.clear();
  rows_ = std::move(now);
  if (epoch_.empty()) {
    const auto time = clock.wall_now().time_since_epoch().count();
    const std::string seed = run + " " + std::to_string(time);
    epoch_ = std::to_string(xxh3_64(std::as_bytes(std::span(seed))));
    any = true;
  }
  if (any || removed) ++change_;
  if (removed) last_removal_ = change_;
  version_ = epoch_ + "-" + std::to_string(change_);
  return {};
}

std::int64_t LiveNumbers::change_of(std::string_view version) const {
  const std::string ours = epoch_ + "-";
  if (epoch_.empty() || !version.starts_with(ours)) return -1;
  version.remove_prefix(ours.size());
  std::uint64_t change = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), change);
  const bool whole = parsed.ec == std::errc{} && parsed.ptr == version.data() + version.size();
  if (!whole || change > change_ || change < last_removal_) return -1;
  return static_cast<std::int64_t>(change);
}

std::string LiveNumbers::text(std::string_view since, bool& only_news) const {
  const std::int64_t from = change_of(since);
  only_news = from >= 0;
  std::string text = "[";
  for (const Row& row : rows_) {
    if (only_news && row.changed <= static_cast<std::uint64_t>(from)) continue;
    if (text.size() > 1) text += ',';
    text += row.json;
  }
  text += ']';
  return text;
}

}  // namespace evalcar::page
