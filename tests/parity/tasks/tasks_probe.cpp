// Lets Python open tasks, see prompts and score answers: one JSON request a line on stdin, one JSON
// answer a line.
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "evaluator/metrics/python_random.h"
#include "evaluator/tasks/score_command.h"
#include "evaluator/tasks/task.h"
#include "store/base/hash.h"

namespace {

using namespace evalcar;
using nlohmann::json;

json failed(const Error& error) {
  return {{"error", error.message}, {"code", std::string(error_code_name(error.code))}};
}

json shown(const tasks::Prompt& prompt) {
  json messages = json::array();
  for (const text::Message& message : prompt.messages) {
    json content = json::array();
    for (const text::Content& part : message.content) {
      content.push_back(part.type == text::Content::Type::kImage
                            ? json({{"type", "image"}})
                            : json({{"type", "text"}, {"text", part.text}}));
    }
    messages.push_back({{"role", message.role}, {"content", content}});
  }
  json images = json::array();
  for (const std::string& image : prompt.images) images.push_back(sha256_hex(image));
  return {{"doc_id", prompt.doc_id},
          {"messages", messages},
          {"images", images},
          {"input", prompt.input}};
}

json score(const tasks::Task& task, const json& request) {
  std::vector<tasks::Response> responses;
  std::vector<std::string> inputs;
  for (const auto& r : request.at("responses")) {
    responses.push_back({r.at("doc_id").get<std::int64_t>(), r.at("text").get<std::string>(),
                         r.value("output_tokens", std::int64_t{1})});
    const auto prompt = task.prompt(responses.back().doc_id, request.value("family", ""));
    if (!prompt) return failed(prompt.error());
    inputs.push_back(prompt->input);
  }
  tasks::ScoreOptions options;
  options.compat = request.value("compat", "lmms-eval");
  options.seed = request.value("seed", std::int64_t{0});
  options.num_fewshot = request.value("shots", std::int64_t{0});
  options.bootstrap_iters = request.value("bootstrap_iters", std::int64_t{1000});
  options.model_family = request.value("family", "");
  const auto random = tasks::make_python_random(options.seed);
  const auto scores = tasks::score(task, responses, inputs, options, *random);
  if (!scores) return failed(scores.error());
  json metrics = json::object();
  for (const protocol::Metric& m : scores->result.metrics) {
    metrics[m.name] = {{"value", m.value ? json(*m.value) : json(nullptr)},
                       {"stderr", m.stderr_value ? json(*m.stderr_value) : json(nullptr)},
                       {"source", m.stderr_source},
                       {"missing", m.missing}};
  }
  return {{"results", scores->result.lmms_results},
          {"config", scores->result.lmms_config},
          {"notes", scores->result.notes},
          {"lines", scores->lines},
          {"metrics", metrics},
          {"values", scores->values},
          {"num_fewshot", scores->result.num_fewshot},
          {"n", scores->result.n},
          {"n_original", scores->result.n_original}};
}

json answer(const json& request) {
  RealFileSystem files;
  const auto op = request.at("op").get<std::string>();
  const std::string tasks_dir = request.value("tasks_dir", "");
  if (op == "check") {
    const auto problems = tasks::check_task_file(files, request.at("path").get<std::string>());
    return problems ? json(*problems) : failed(problems.error());
  }
  if (op == "list") {
    const auto all = tasks::list_tasks(files, tasks_dir);
    if (!all) return failed(all.error());
    json names = json::array();
    for (const auto& task : *all) names.push_back(task.name);
    return names;
  }
  if (op == "order")
    return tasks::lmms_eval_order(request.at("names").get<std::vector<std::string>>());
  if (op == "effective") {
    return tasks::effective_samples(request.at("limit").get<double>(),
                                    request.at("size").get<std::int64_t>());
  }
  if (op == "limits") {
    const auto sizes = request.at("sizes").get<std::vector<std::int64_t>>();
    const auto limits = tasks::resolve_limits(request.at("limit").get<double>(), sizes,
                                              request.value("compat", "lmms-eval"));
    if (!limits) return failed(limits.error());
    json result = json::array();
    for (const auto& limit : *limits) result.push_back(limit ? json(*limit) : json(nullptr));
    return result;
  }
  if (op == "command") {
    tasks::ScoreCommandOptions options;
    options.task = request.at("task").get<std::string>();
    options.samples = request.at("samples").get<std::string>();
    options.data_dir = request.value("data", "");
    options.tasks_dir = tasks_dir;
    options.bootstrap_iters = 1000;
    options.json = request.value("json", true);
    std::ostringstream out;
    std::ostringstream err;
    const int code = tasks::run_score(options, files, out, err);
    return {{"code", code}, {"out", out.str()}, {"err", err.str()}};
  }
  const auto file = tasks::find_task(files, tasks_dir, request.at("task").get<std::string>());
  if (!file) return failed(file.error());
  const std::int64_t shots = request.value("shots", std::int64_t{0});
  const auto task = tasks::Task::open(files, *file, request.value("data", ""), shots);
  if (!task) return failed(task.error());
  if (op == "size") return (*task)->size();
  if (op == "few_shot") {
    tasks::FewShotOptions options{.shots = shots,
                                  .seed = request.value("seed", std::int64_t{1234})};
    const std::string turn = request.value("turn", "by input");
    if (turn != "by input")
      options.turn =
          turn == "in order" ? tasks::FewShotTurn::kInOrder : tasks::FewShotTurn::kLogged;
    const auto ids = request.at("ids").get<std::vector<std::int64_t>>();
    const auto texts = (*task)->few_shot(ids, request.value("family", ""), options);
    if (!texts) return failed(texts.error());
    return {{"inputs", texts->inputs}, {"prompts", texts->prompts}};
  }
  if (op == "fingerprint") return (*task)->data_fingerprint();
  if (op == "select") {
    const auto limit =
        request.contains("limit") ? std::optional(request.at("limit").get<double>()) : std::nullopt;
    const auto ids = (*task)->select(limit, request.value("offset", std::int64_t{0}));
    return ids ? json(*ids) : failed(ids.error());
  }
  if (op == "prompts") {
    json result = json::array();
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < (*task)->size(); ++id) ids.push_back(id);
    if (request.contains("ids")) ids = request.at("ids").get<std::vector<std::int64_t>>();
    for (const std::int64_t id : ids) {
      const auto prompt = (*task)->prompt(id, request.value("family", ""));
      result.push_back(prompt ? shown(*prompt) : failed(prompt.error()));
    }
    return result;
  }
  if (op == "score") return score(**task, request);
  return {{"unknown", op}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(json::parse(line)).dump(-1, ' ', false, json::error_handler_t::replace)
              << "\n";
  }
}
