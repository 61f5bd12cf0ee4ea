// Lets Python call the writers of agent/publish:
//   publish_probe results SPEC OUT_DIR
//       SPEC: {"checkpoint", "limit", "seconds", "tasks": [{"task", "version", "n", "n_original",
//       "n_effective", "results", "config", "samples": PATH}]}; prints the files
//   publish_probe events FILE SPEC
//       SPEC: [{"time", "step", "values": {tag: number}, "texts": {tag: text}}]
//   publish_probe names
//       a path a line from stdin; prints sanitized names
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "agent/publish/event_log.h"
#include "agent/publish/results_files.h"

using namespace evalcar;
using Json = nlohmann::ordered_json;

namespace {

int fail(const Error& error) {
  std::cerr << error.message << "\n";
  return 1;
}

int write_results(const std::string& spec_path, const std::string& out) {
  std::ifstream file(spec_path);
  const Json spec = Json::parse(file);
  publish::RunFacts facts;
  facts.checkpoint = spec["checkpoint"];
  facts.architecture = "qwen2_5_vl";
  facts.device = "cpu";
  facts.version = "0.1.0";
  if (spec["limit"].is_number()) facts.settings.limit = spec["limit"].get<double>();
  facts.started = WallTime{std::chrono::seconds{1795251600}};
  facts.finished = facts.started + std::chrono::seconds{5};
  protocol::EvaluationResult result;
  result.weights_sha256 = "abc";
  result.seconds = spec["seconds"];
  std::map<std::string, std::string> samples;
  for (const Json& task : spec["tasks"]) {
    protocol::TaskResult one;
    one.task = one.alias = task["task"];
    one.version = task["version"];
    one.n = task["n"];
    one.n_original = task["n_original"];
    one.n_effective = task["n_effective"];
    one.lmms_results = task["results"].dump();
    one.lmms_config = task["config"].dump();
    samples[one.task] = task["samples"];
    result.tasks.push_back(std::move(one));
  }
  RealFileSystem files;
  const auto written = publish::write_results_files(
      files, out, facts, result,
      [&](const std::string& task, const std::function<Status(std::string_view)>& line) -> Status {
        std::ifstream lines(samples[task]);
        for (std::string text; std::getline(lines, text);) EVALCAR_RETURN_IF_ERROR(line(text));
        return {};
      });
  if (!written.has_value()) return fail(written.error());
  std::cout << Json(
      {{"results", written->results}, {"samples", written->samples}, {"table", written->table}});
  return 0;
}

int write_events(const std::string& path, const std::string& spec_path) {
  std::ifstream file(spec_path);
  RealFileSystem files;
  publish::EventLog log(files, path);
  for (const Json& event : Json::parse(file)) {
    const double time = event["time"];
    const Status appended = log.append(
        {{time,
          publish::step_event(
              time, event["step"], event["values"].get<std::map<std::string, double>>(),
              event.value("texts", Json::object()).get<std::map<std::string, std::string>>())}});
    if (!appended.has_value()) return fail(appended.error());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "results") {
    return write_results(arguments[1], arguments[2]);
  }
  if (arguments.size() == 3 && arguments[0] == "events") {
    return write_events(arguments[1], arguments[2]);
  }
  if (arguments.size() == 1 && arguments[0] == "names") {
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << publish::sanitized_model_name(line) << "\n";
    }
    return 0;
  }
  std::cerr << "usage: publish_probe results SPEC OUT | events FILE SPEC | names\n";
  return 2;
}
