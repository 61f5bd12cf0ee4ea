#include "evaluator/tasks/task_config.h"

#include "evaluator/tasks/prompt.h"

namespace evalcar::tasks {
namespace {

Value to_value(const Setting& setting) {
  return std::visit([](const auto& v) { return Value(v); }, setting);
}

Value to_value(const Settings& settings) {
  Value out = Value::object();
  for (const auto& [name, setting] : settings) out[name] = to_value(setting);
  return out;
}

Value metric_list(const Definition& definition) {
  Value list = Value::array();
  for (const MetricDefinition& metric : definition.metrics) {
    Value entry = Value::object();
    entry["metric"] = metric.name;
    entry["aggregation"] =
        metric.aggregation == "mean" ? "mean" : "<evalcar aggregation " + metric.aggregation + ">";
    entry["higher_is_better"] = metric.higher_is_better;
    for (const auto& [name, setting] : metric.extra) entry[name] = to_value(setting);
    list.push_back(std::move(entry));
  }
  return list;
}

// lm-eval's names; it has none for the loss over a conversation.
const char* output_type(RequestKind kind) {
  switch (kind) {
    case RequestKind::kMultipleChoice:
      return "multiple_choice";
    case RequestKind::kLoglikelihood:
      return "loglikelihood";
    case RequestKind::kLoss:
      return "loss";
    case RequestKind::kRolling:
      return "loglikelihood_rolling";
    case RequestKind::kGenerate:
      break;
  }
  return "generate_until";
}

Value request_settings(const RequestDefinition& request) {
  Value out = Value::object();
  if (request.kind == RequestKind::kLoss) {
    out["messages"] = request.messages_column;
    out["answers"] = request.last_answer_only ? "last" : "all";
  } else if (request.kind != RequestKind::kRolling) {
    out["format"] = request.plain ? "plain" : "chat";
    out["delimiter"] = request.delimiter;
  }
  if (request.max_length.has_value()) out["max_length"] = *request.max_length;
  return out;
}

// All variants, then the one in use spread over the same object, as lmms-eval's update() leaves it;
// a family of its own has its settings alone.
Value prompt_settings(const Definition& definition, const std::string& model_family) {
  Value out = Value::object();
  for (const auto& [family, settings] : definition.prompt.variants) {
    if (family == model_family) return to_value(settings);
    out[family] = to_value(settings);
  }
  for (const auto& [name, setting] : variant_of(definition.prompt, model_family))
    out[name] = to_value(setting);
  return out;
}

}  // namespace

Value generation_kwargs(const GenerationDefaults& defaults) {
  Value out = Value::object();
  if (defaults.max_new_tokens) out["max_new_tokens"] = *defaults.max_new_tokens;
  if (defaults.temperature) out["temperature"] = *defaults.temperature;
  if (defaults.top_p) out["top_p"] = *defaults.top_p;
  if (defaults.top_k) out["top_k"] = *defaults.top_k;
  if (defaults.num_beams) out["num_beams"] = *defaults.num_beams;
  if (defaults.temperature || defaults.do_sample) out["do_sample"] = defaults.do_sample;
  out["until"] =
      defaults.until.empty() ? std::vector<std::string>{defaults.default_until} : defaults.until;
  if (!defaults.max_new_tokens && !defaults.temperature && !defaults.top_p && !defaults.top_k &&
      defaults.until.empty())
    out["do_sample"] = defaults.do_sample;
  return out;
}

Value task_config(const Definition& definition, const ScoreOptions& options) {
  const TaskFile& file = definition.file;
  const std::string by_file = "<evalcar task file " + file.name + ">";
  Value out = Value::object();
  out["task"] = file.name;
  out["dataset_path"] = file.data_set;
  if (!file.config.empty()) out["dataset_name"] = file.config;
  if (!definition.data_files.empty()) out["data_files"] = definition.data_files;
  out["test_split"] = file.split;
  if (definition.fewshot && !definition.fewshot->split.empty())
    out["fewshot_split"] = definition.fewshot->split;
  out["full_docs"] = false;
  out["process_results_use_image"] = false;
  if (!definition.image_columns.empty()) out["doc_to_visual"] = by_file;
  out["doc_to_text"] = definition.prompt.builder.empty() ? definition.prompt.text : by_file;
  out["doc_to_target"] = definition.target_column.empty() ? definition.target_text.value_or("")
                                                          : definition.target_column;
  if (definition.prompt.builder == "mmmu") out["doc_to_messages"] = by_file;
  out["description"] = "";
  const FewShotDefinition fewshot = definition.fewshot.value_or(FewShotDefinition{});
  const bool of_examples = file.request.kind == RequestKind::kGenerate || options.num_fewshot > 0;
  out["target_delimiter"] = of_examples ? fewshot.target_delimiter : file.request.delimiter;
  out["fewshot_delimiter"] = fewshot.delimiter;
  if (definition.fewshot) out["fewshot_config"]["sampler"] = fewshot.sampler;
  out["num_fewshot"] = options.num_fewshot;
  out["metric_list"] = metric_list(definition);
  const RequestDefinition& request = file.request;
  out["output_type"] = output_type(request.kind);
  if (request.kind != RequestKind::kGenerate) {
    out["generation_kwargs"] = nullptr;
    if (!request.choices_column.empty()) out["doc_to_choice"] = request.choices_column;
    if (!request.choices.empty()) out["doc_to_choice"] = request.choices;
    out["evalcar_request"] = python_json(request_settings(request));
  }
  const auto effective = parse_json(options.gen_kwargs_json);
  if (request.kind == RequestKind::kGenerate)
    out["generation_kwargs"] = effective ? *effective : generation_kwargs(file.generation);
  out["repeats"] = 1;
  out["should_decontaminate"] = false;
  if (!definition.cluster_column.empty()) out["cluster_key"] = definition.cluster_column;
  out["score_key"] = "score";
  if (file.version != "Yaml") {
    const auto number = parse_json(file.version);
    out["metadata"]["version"] = number && number->is_number() ? *number : Value(file.version);
  }
  if (!definition.prompt.variants.empty())
    out["lmms_eval_specific_kwargs"] = prompt_settings(definition, options.model_family);
  out["auto_strip_thinking"] = false;
  return out;
}

}  // namespace evalcar::tasks
