#include "agent/http/live_runs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/page/page_data.h"
#include "agent/publish/prometheus.h"

namespace evalcar::http {

Result<const state::Reader*> LiveRuns::reader_of(const std::string& database) {
  const auto known = readers_.find(database);
  if (known != readers_.end()) return &known->second;
  EVALCAR_ASSIGN_OR_RETURN(auto reader, state::Reader::open(database));
  return &readers_.emplace(database, std::move(reader)).first->second;
}

Result<publish::LiveDirectory> LiveRuns::find(const std::string& run) const {
  for (publish::LiveDirectory& directory : board_.directories()) {
    const bool asked = run.empty() || directory.run == run;
    if (asked && !directory.run.empty()) return std::move(directory);
  }
  return make_error(ErrorCode::kNotFound,
                    run.empty() ? "there is no run yet" : "no such run is served");
}

Result<std::string> LiveRuns::database_of(const std::string& run) const {
  EVALCAR_ASSIGN_OR_RETURN(publish::LiveDirectory directory, find(run));
  return std::move(directory.database);
}

void LiveRuns::cannot_read(const std::string& database, const Error& why) {
  readers_.erase(database);
  std::string& said = troubles_[database];
  if (said == why.message) return;
  said = why.message;
  spdlog::warn("/metrics: {}", why.message);
}

void LiveRuns::forget_others(const std::vector<publish::LiveDirectory>& directories) {
  const auto gone = [&directories](const auto& kept) {
    return std::ranges::find(directories, kept.first, &publish::LiveDirectory::database) ==
           directories.end();
  };
  std::erase_if(readers_, gone);
  std::erase_if(troubles_, gone);
}

std::string LiveRuns::prometheus() {
  const auto directories = board_.directories();
  forget_others(directories);
  std::vector<publish::PrometheusSource> sources;
  std::map<std::string, Error> failed;
  for (const publish::LiveDirectory& directory : directories) {
    const auto reader = reader_of(directory.database);
    if (!reader.has_value()) failed.emplace(directory.database, reader.error());
    sources.push_back({.reader = reader.has_value() ? *reader : nullptr,
                       .agent = directory.facts,
                       .run = directory.run,
                       .database = directory.database,
                       .failed = [&failed, &directory](const Error& error) {
                         failed.emplace(directory.database, error);
                       }});
  }
  std::string text = publish::prometheus_text(sources, clock_);
  std::erase_if(troubles_, [&failed](const auto& said) { return !failed.contains(said.first); });
  for (const auto& [database, error] : failed) cannot_read(database, error);
  return text;
}

Result<std::string> LiveRuns::document(const publish::LiveDirectory& directory, bool with_metrics) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader* reader, reader_of(directory.database));
  page::LivePart part;
  part.with_metrics = with_metrics;
  for (const publish::LiveDirectory& other : board_.directories()) {
    if (!other.run.empty()) part.runs.push_back(other.run);
  }
  return page::live_page_data(*reader, clock_, directory.run, directory.facts, part);
}

Result<std::string> LiveRuns::page_data(const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const publish::LiveDirectory directory, find(run));
  return document(directory, true);
}

Result<LiveRuns::News> LiveRuns::page_news(const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const publish::LiveDirectory directory, find(run));
  EVALCAR_ASSIGN_OR_RETURN(std::string json, document(directory, false));
  return News{directory.run, std::move(json)};
}

std::vector<LiveRuns::News> LiveRuns::all_news() {
  std::vector<News> all;
  for (const publish::LiveDirectory& directory : board_.directories()) {
    if (directory.run.empty()) continue;
    auto json = document(directory, false);
    if (json.has_value()) all.push_back({directory.run, std::move(*json)});
  }
  return all;
}

Result<std::string> LiveRuns::samples(const page::SampleQuery& query) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string database, database_of(query.run));
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader* reader, reader_of(database));
  return page::sample_list(*reader, query);
}

}  // namespace evalcar::http
