#include "agent/http/evaluate_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "agent/config/few_shot.h"
#include "agent/http/checkpoint_choice.h"
#include "agent/http/fields.h"
#include "agent/publish/results_files.h"
#include "store/base/text.h"
#include "store/checkpoint/output_place.h"
#include "store/protocol/wrapper_name.h"

namespace evalcar::http {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxTasks = 200;
constexpr std::size_t kMaxWord = 1'000;
constexpr std::int64_t kMostShots = 1'000;
constexpr std::int64_t kMostBatch = 1'000'000;
constexpr std::uint64_t kMaxConfig = std::uint64_t{4} << 20U;
/// Of lmms-eval's EvaluateRequest, and what lmms-engine's client adds.
constexpr const char* kFields[] = {
    "model",    "tasks",      "model_args",        "num_fewshot", "batch_size",
    "device",   "limit",      "gen_kwargs",        "log_samples", "predict_only",
    "num_gpus", "output_dir", "lmms_engine_kwargs"};
constexpr std::size_t kMostNotes = 100;

Response response_of(const Error& error) {
  const unsigned status = error.code == ErrorCode::kUnsupported   ? 403
                          : error.code == ErrorCode::kUnavailable ? 503
                                                                  : 422;
  return error_response(status, error.message);
}

/// model_args, some of which also stand beside them.
class Arguments {
 public:
  Arguments(Fields& fields, const EvaluateRules& rules, Wish& wish)
      : fields_(fields), rules_(rules), wish_(wish) {}

  void take_all(const OrderedJson& arguments) {
    for (const auto& [key, value] : arguments.items()) take(key, value);
  }
  /// A field of the request that lmms-eval does not have.
  void take_beside(const std::string& key, const OrderedJson& value) {
    if (!names_a_checkpoint(key)) {
      take(key, value);
    } else {
      note(key, value, "belongs in model_args");
    }
  }
  void take_engine_kwargs(const OrderedJson& arguments) {
    for (const auto& [key, value] : arguments.items()) {
      const std::string name = "lmms_engine_kwargs." + key;
      if (key == "checkpoint_type" || value.is_null()) continue;
      if (key == "model_path") {
        if (!value.is_string()) note(name, value, "expected the folder of a checkpoint");
      } else if (key == "output_path") {
        note(name, value, "nothing is merged on disk for an evaluation (POST /merge does that)");
      } else {
        note(name, value, "not known here");
      }
    }
  }
  void take(const std::string& key, const OrderedJson& value) {
    protocol::EvaluationSettings& settings = wish_.plan.settings;
    if (names_a_checkpoint(key)) {
      if (names_something_else(value)) note(key, value, "names no checkpoint of this agent");
    } else if (key == "max_pixels") {
      pixels(key, value, settings.max_pixels, settings.max_pixels_set, kDefaults.max_pixels);
    } else if (key == "min_pixels") {
      pixels(key, value, settings.min_pixels, settings.min_pixels_set, kDefaults.min_pixels);
    } else if (key == "batch_size") {
      batch_size(value);
    } else if (key == "attn_implementation") {
      attention(value);
    } else if (key == "dtype" || key == "torch_dtype") {
      word(key, value, {"auto", "float32", "bfloat16"}, wish_.plan.dtype);
    } else if (key == "num_gpus" || key == "tensor_parallel_size" || key == "data_parallel_size") {
      if (value != 1) note(key, value, "runs on the configured device");
    } else if (key == "max_length") {
      note(key, value, "no prompt is cut by it, as in lmms-eval's wrappers, which only keep it");
    } else if (key == "max_model_len") {
      note(key, value, "prompts are not cut here");
    } else if (key == "gpu_memory_utilization") {
      const bool same = value.is_number() && value == rules_.gpu_memory_utilization;
      if (!same) note(key, value, "as configured for the evaluator");
    } else if (!holds_checkpoint(value)) {
      note(key, value, "not known here");
    }
  }

 private:
  /// Such as the folder of the model that a training began with.
  bool names_something_else(const OrderedJson& value) const {
    return value.is_string() && is_path(value.get_ref<const std::string&>()) &&
           !leads_to(rules_.checkpoints, value.get_ref<const std::string&>(),
                     wish_.plan.checkpoint);
  }
  bool holds_checkpoint(const OrderedJson& value) const {
    if (!value.is_string() || !value.get_ref<const std::string&>().starts_with('/')) return false;
    const auto& text = value.get_ref<const std::string&>();
    return leads_to(rules_.checkpoints, text, wish_.plan.checkpoint);
  }
  void pixels(const std::string& key, const OrderedJson& value, std::int64_t& place,
              std::int64_t& is_set, std::int64_t by_default) {
    if (value.is_number_integer() && value > 0 && value < 1'000'000'000'000) {
      place = value.get<std::int64_t>();
      is_set = place == by_default ? 1 : 0;
    } else if (!value.is_null()) {
      fields_.refuse("model_args", key + ": expected a positive whole number");
    }
  }
  void batch_size(const OrderedJson& value) {
    std::int64_t& bound = wish_.plan.settings.batch_size;
    if (value.is_null()) return;
    std::int64_t asked = 0;
    if (value.is_number_integer()) {
      asked = value > 0 && value < kMostBatch ? value.get<std::int64_t>() : 0;
    } else if (value.is_string()) {  // lmms-eval takes "8", "auto" and "auto:8" (asks 8 times)
      const auto& text = value.get_ref<const std::string&>();
      if (text == "auto" || text.starts_with("auto:")) return;
      const char* const end = text.data() + text.size();
      const auto parsed = std::from_chars(text.data(), end, asked);
      if (parsed.ec != std::errc{} || parsed.ptr != end || asked >= kMostBatch) asked = 0;
    }
    if (asked < 1) {
      return fields_.refuse("batch_size", "expected a positive whole number or \"auto\"");
    }
    bound = bound == 0 ? asked : std::min(bound, asked);
  }
  void word(const std::string& key, const OrderedJson& value,
            std::initializer_list<const char*> words, std::string& place) {
    if (value.is_null()) return;
    for (const char* const known : words) {
      if (value == known) place = known;
    }
    if (value != place) note(key, value, "not one that is known here");
  }
  /// Refused, not noted: lmms-eval's job ends with these words.
  void attention(const OrderedJson& value) {
    static constexpr std::array<std::string_view, 3> kKnown = {"flash_attention_2", "sdpa",
                                                               "eager"};
    if (value.is_null()) return;
    const auto known = value.is_string()
                           ? std::ranges::find(kKnown, value.get_ref<const std::string&>())
                           : kKnown.end();
    if (known == kKnown.end()) {
      fields_.refuse("attn_implementation", std::string(protocol::kAttentionRule));
    } else {
      wish_.plan.settings.attn_implementation = *known;
    }
  }
  void note(const std::string& key, const OrderedJson& value, const char* why) {
    if (wish_.notes.size() == kMostNotes) wish_.notes.emplace_back("more arguments are not listed");
    if (wish_.notes.size() > kMostNotes) return;
    const std::string text = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    wish_.notes.push_back(printable(key.substr(0, 80)) + "=" + printable(text.substr(0, 80)) +
                          ": " + why);
  }

  inline static const protocol::EvaluationSettings kDefaults{};

  Fields& fields_;
  const EvaluateRules& rules_;
  Wish& wish_;
};

void check_tasks(Fields& fields, const EvaluateRules& rules,
                 const std::vector<std::string>& tasks) {
  if (tasks.empty()) fields.refuse("tasks", "no task is named");
  if (tasks.size() > kMaxTasks) return fields.refuse("tasks", "more than 200 tasks");
  std::string unknown;
  for (const std::string& task : tasks) {
    if (std::ranges::find(rules.tasks, task) != rules.tasks.end()) continue;
    unknown.append(unknown.empty() ? "\"" : ", \"").append(printable(task.substr(0, 80))) += '"';
  }
  if (!unknown.empty())
    fields.refuse("tasks", "not known here (GET /tasks lists them): " + unknown);
}

void take_shots(Fields& fields, const EvaluateRules& rules, std::optional<std::int64_t> shots,
                protocol::EvaluationSettings& settings) {
  if (shots.has_value() && (*shots < 0 || *shots > kMostShots)) {
    return fields.refuse("num_fewshot",
                         "expected a whole number from 0 to " + std::to_string(kMostShots));
  }
  const bool have_examples = std::ranges::any_of(settings.tasks, [&](const std::string& task) {
    return std::ranges::find(rules.few_shot_tasks, task) != rules.few_shot_tasks.end();
  });
  settings.num_fewshot = config::settled_shots(shots, settings.num_fewshot, have_examples);
}

/// 0 is all documents, as in lmms-eval's server.
void take_limit(Fields& fields, const OrderedJson& limit, protocol::EvaluationSettings& settings) {
  settings.limit.reset();
  if (limit.is_null() || limit == 0) return;
  const double value = limit.get<double>();
  const bool whole = value == static_cast<double>(static_cast<std::int64_t>(std::min(value, 1e9)));
  if (value > 0 && (value < 1 || (whole && value < 1e9))) {
    settings.limit = value;
  } else {
    fields.refuse("limit", "expected a count, or a fraction below 1");
  }
}

/// Where the trainer asks for results inside the checkpoint, nothing is written there.
Result<std::string> output_of(const EvaluateRules& rules, const std::string& wanted,
                              const std::string& checkpoint) {
  // lmms-engine's own place; it may be there, as the link that leads to our results.
  if (base_name(wanted) == "eval") {
    if (leads_to(rules.checkpoints, parent_path(wanted), checkpoint)) return std::string();
  }
  const Places& places = rules.checkpoints.places();
  EVALCAR_ASSIGN_OR_RETURN(const std::string place, places.output(wanted));
  EVALCAR_RETURN_IF_ERROR(places.check_not_ours(place));
  // The folder that is made in it, too: a run that is called "checkpoints" gives it its name.
  for (const std::string& path :
       {place, join_path(place, publish::sanitized_model_name(checkpoint))}) {
    const Status allowed =
        checkpoint::check_output_place(places.files(), path, checkpoint::OutputUse::kFilled);
    if (!allowed.has_value()) return make_error(ErrorCode::kUnsupported, allowed.error().message);
  }
  if (place == checkpoint || place.starts_with(checkpoint + "/")) {  // it is gone, and stays so
    return make_error(ErrorCode::kUnsupported, place + ": lies in the checkpoint itself");
  }
  return place;
}

/// Whoever names an engine (vllm, sglang) or another wrapper expects what that would ask. "" where
/// the request means the same, or the family is not known yet.
std::string wrapper_note(const FileSystem& files, const std::string& model,
                         const std::string& checkpoint) {
  const auto text = read_file(files, join_path(checkpoint, "config.json"), kMaxConfig);
  const OrderedJson config = OrderedJson::parse(text.value_or(""), nullptr, false);
  if (!config.is_object() || !config.contains("model_type")) return "";
  if (!config["model_type"].is_string()) return "";
  const auto& family = config["model_type"].get_ref<const std::string&>();
  const std::string wrapper(protocol::wrapper_name(family));
  if (model == wrapper || model == wrapper + "_chat") return "";
  const std::string named = printable(model.substr(0, 80));
  return "model=" + named + ": the checkpoint is of the family " + printable(family.substr(0, 80)) +
         ", asked as lmms-eval's wrapper " + wrapper + ", not " + named +
         ": its prompt, pictures and limit of tokens may differ";
}

}  // namespace

std::variant<Wish, Response> read_evaluate_request(const EvaluateRules& rules,
                                                   const OrderedJson& body) {
  Fields fields(body);
  Wish wish;
  wish.plan.settings = rules.configured;
  wish.plan.settings.batch_size = 0;  // the configured one bounds it when it runs
  wish.plan.dtype = rules.dtype;
  protocol::EvaluationSettings& settings = wish.plan.settings;

  const std::string model = fields.text("model");
  settings.tasks = fields.text_list("tasks");
  const OrderedJson model_args = fields.optional_object("model_args");
  const auto num_fewshot = fields.optional_integer("num_fewshot");
  const OrderedJson batch_size = fields.optional_integer_or_text("batch_size");
  const auto device = fields.optional_text("device");
  const OrderedJson limit = fields.optional_number("limit");
  const auto gen_kwargs = fields.optional_text("gen_kwargs");
  wish.plan.log_samples = fields.boolean("log_samples", true);
  const bool predict_only = fields.boolean("predict_only", false);
  const std::int64_t num_gpus = fields.integer("num_gpus", 1);
  const auto output_dir = fields.optional_text("output_dir");
  const OrderedJson engine_kwargs = fields.optional_object("lmms_engine_kwargs");
  if (!fields.good()) return fields.response();

  check_tasks(fields, rules, settings.tasks);
  take_limit(fields, limit, settings);
  if (gen_kwargs.value_or("").size() > kMaxWord) fields.refuse("gen_kwargs", "too long");
  settings.gen_kwargs = gen_kwargs.value_or("");
  take_shots(fields, rules, num_fewshot, settings);
  if (engine_kwargs.contains("checkpoint_type")) {
    const OrderedJson& kind = engine_kwargs["checkpoint_type"];
    if (kind != "regular" && kind != "ema") {
      fields.refuse("lmms_engine_kwargs", "checkpoint_type: expected \"regular\" or \"ema\"");
    } else {
      wish.plan.kind = kind.get<std::string>();
    }
  }
  if (!fields.good()) return fields.response();

  auto checkpoint =
      choose_checkpoint(rules.checkpoints, rules.knows, wish.plan.kind, model_args, engine_kwargs);
  if (!checkpoint.has_value()) return response_of(checkpoint.error());
  wish.plan.checkpoint = std::move(checkpoint).value();
  if (output_dir.has_value() && !output_dir->empty()) {
    auto place = output_of(rules, *output_dir, wish.plan.checkpoint);
    if (!place.has_value()) return response_of(place.error());
    wish.plan.output_dir = std::move(place).value();
  }

  std::string asked = wrapper_note(rules.checkpoints.places().files(), model, wish.plan.checkpoint);
  if (!asked.empty()) wish.notes.push_back(std::move(asked));
  Arguments arguments(fields, rules, wish);
  arguments.take_all(model_args);
  for (const auto& [key, value] : body.items()) {
    if (std::ranges::find(kFields, key) == std::end(kFields)) arguments.take_beside(key, value);
  }
  arguments.take_engine_kwargs(engine_kwargs);
  arguments.take("batch_size", batch_size);
  arguments.take("num_gpus", num_gpus);
  if (device.has_value()) {
    wish.notes.push_back("device=" + printable(device->substr(0, 80)) +
                         ": runs on the configured device");
  }
  if (predict_only) wish.notes.push_back("predict_only=true: the answers are scored all the same");
  if (!fields.good()) return fields.response();

  wish.request =
      OrderedJson{
          {"model", model},
          {"tasks", settings.tasks},
          {"model_args", body.contains("model_args") ? body["model_args"] : OrderedJson()},
          {"num_fewshot", num_fewshot.has_value() ? OrderedJson(*num_fewshot) : OrderedJson()},
          {"batch_size", batch_size},
          {"device", device.has_value() ? OrderedJson(*device) : OrderedJson()},
          {"limit", limit},
          {"gen_kwargs", gen_kwargs.has_value() ? OrderedJson(*gen_kwargs) : OrderedJson()},
          {"log_samples", wish.plan.log_samples},
          {"predict_only", predict_only},
          {"num_gpus", num_gpus},
          {"output_dir", output_dir.has_value() ? OrderedJson(*output_dir) : OrderedJson()}}
          .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return wish;
}

}  // namespace evalcar::http
