#include "agent/http/live_runs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "agent/publish/prometheus.h"

namespace evalcar::http {

namespace {

/// Of "name-01234567-2": what the runs of one output directory have in common.
std::string_view stem_of(std::string_view run) { return run.substr(0, run.rfind('-')); }

}  // namespace

Result<LiveRuns::Database*> LiveRuns::open(const std::string& database) {
  const auto known = databases_.find(database);
  if (known != databases_.end()) return &known->second;
  EVALCAR_ASSIGN_OR_RETURN(auto reader, state::Reader::open(database));
  return &databases_.emplace(database, Database{std::move(reader)}).first->second;
}

Result<publish::LiveDirectory> LiveRuns::find(const std::string& run) const {
  auto directories = board_.directories();
  std::erase_if(directories, [](const auto& directory) { return directory.run.empty(); });
  auto found = run.empty() ? directories.begin()
                           : std::ranges::find(directories, run, &publish::LiveDirectory::run);
  if (found == directories.end()) {
    found = std::ranges::find(directories, stem_of(run),
                              [](const auto& directory) { return stem_of(directory.run); });
  }
  if (found != directories.end()) return std::move(*found);
  return make_error(ErrorCode::kNotFound,
                    run.empty() ? "there is no run yet" : "no such run is served (now)");
}

std::vector<std::string> LiveRuns::names() const {
  std::vector<std::string> all;
  for (publish::LiveDirectory& directory : board_.directories()) {
    if (!directory.run.empty()) all.push_back(std::move(directory.run));
  }
  return all;
}

Result<std::string> LiveRuns::database_of(const std::string& run) const {
  EVALCAR_ASSIGN_OR_RETURN(publish::LiveDirectory directory, find(run));
  return std::move(directory.database);
}

void LiveRuns::cannot_read(const std::string& database, const Error& why) {
  databases_.erase(database);
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
  std::erase_if(databases_, gone);
  std::erase_if(troubles_, gone);
}

std::string LiveRuns::prometheus() {
  const auto directories = board_.directories();
  forget_others(directories);
  std::vector<publish::PrometheusSource> sources;
  std::map<std::string, Error> failed;
  for (const publish::LiveDirectory& directory : directories) {
    const auto opened = open(directory.database);
    if (!opened.has_value()) failed.emplace(directory.database, opened.error());
    sources.push_back({.reader = opened.has_value() ? &(*opened)->reader : nullptr,
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

Result<std::string> LiveRuns::document(const publish::LiveDirectory& directory, bool with_metrics,
                                       const std::string& since) {
  forget_others(board_.directories());
  EVALCAR_ASSIGN_OR_RETURN(Database* const opened, open(directory.database));
  auto& documents = opened->documents;
  std::erase_if(documents, [&](const auto& kept) { return kept.first != directory.run; });
  const auto kept = documents.try_emplace(directory.run, directory.run).first;
  auto text = kept->second.text(opened->reader, clock_, directory.facts,
                                {.runs = names(), .with_metrics = with_metrics, .since = since});
  if (!text.has_value()) databases_.erase(directory.database);
  return text;
}

Result<std::string> LiveRuns::page_data(const std::string& run, const std::string& since) {
  if (names().empty()) return std::string(R"({"run":"","runs":[]})");
  EVALCAR_ASSIGN_OR_RETURN(const publish::LiveDirectory directory, find(run));
  return document(directory, true, since);
}

Result<LiveRuns::News> LiveRuns::page_news(const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const publish::LiveDirectory directory, find(run));
  EVALCAR_ASSIGN_OR_RETURN(std::string json, document(directory, false, ""));
  return News{directory.run, std::move(json)};
}

std::vector<LiveRuns::News> LiveRuns::news_for(const std::vector<std::string>& topics) {
  std::vector<News> all;
  for (const std::string& topic : topics) {
    const auto directory = find(topic);
    if (!directory.has_value()) {
      const nlohmann::ordered_json gone = {{"run", topic}, {"gone", true}, {"runs", names()}};
      all.push_back(
          {topic, gone.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)});
      continue;
    }
    auto json = document(*directory, false, "");
    if (json.has_value()) all.push_back({topic, std::move(*json)});
  }
  return all;
}

Result<std::string> LiveRuns::samples(const page::SampleQuery& query,
                                      const page::SamplePictures& pictures) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string database, database_of(query.run));
  EVALCAR_ASSIGN_OR_RETURN(Database* const opened, open(database));
  return page::sample_list(opened->reader, query, pictures);
}

}  // namespace evalcar::http
