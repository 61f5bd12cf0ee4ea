#include "evaluator/service/generation.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "evaluator/service/wrapper.h"

namespace evalcar::service {
namespace {

constexpr std::int64_t kTopKOfTransformers = 50;  // where nobody says

Result<double> parse_number(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return make_error(ErrorCode::kInvalidArgument, "gen_kwargs: " + std::string(key) + "=" +
                                                       std::string(text) + ": expected a number");
  }
  return value;
}

Result<std::int64_t> parse_count(std::string_view key, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1) {
    return make_error(ErrorCode::kInvalidArgument, "gen_kwargs: " + std::string(key) + "=" +
                                                       std::string(text) +
                                                       ": expected a whole number >= 1");
  }
  return value;
}

bool parse_bool(std::string_view text) { return text == "true" || text == "True"; }

/// What the wrapper and transformers make of top_k and top_p.
Status settle_draws(const tasks::GenerationDefaults& task, const GenerationConfig& config,
                    Draws draws, engine::GenerationSettings& effective) {
  if (!config.unsupported_draw.empty())
    return make_error(ErrorCode::kUnsupported,
                      config.unsupported_draw +
                          " changes answers that are drawn (temperature above 0) and is not "
                          "supported; expected it absent");
  if (draws == Draws::kHandsOverTopP && task.top_k.has_value())
    return make_error(ErrorCode::kInvalidArgument,
                      "top_k=" + std::to_string(*task.top_k) +
                          ": lmms-eval's wrapper of this model does not hand it over; expected it "
                          "in generation_config.json");
  const bool both = draws == Draws::kHandsOverBoth;
  const bool given = draws == Draws::kHandsOverGiven;
  const bool takes_top_k = !task.top_k.has_value() && !both;
  const bool takes_top_p = !task.top_p.has_value() && given;
  if (takes_top_k && !config.wrong_top_k.empty())
    return make_error(ErrorCode::kCorruption, config.wrong_top_k);
  if (takes_top_p && !config.wrong_top_p.empty())
    return make_error(ErrorCode::kCorruption, config.wrong_top_p);
  effective.top_p = task.top_p.value_or(given ? config.top_p.value_or(1.0) : 1.0);
  effective.top_k = task.top_k.value_or(both ? 0 : config.top_k.value_or(kTopKOfTransformers));
  return {};
}

}  // namespace

Result<tasks::GenerationDefaults> apply_gen_kwargs(tasks::GenerationDefaults defaults,
                                                   std::string_view gen_kwargs) {
  while (!gen_kwargs.empty()) {
    const std::size_t comma = gen_kwargs.find(',');
    const std::string_view item = gen_kwargs.substr(0, comma);
    gen_kwargs.remove_prefix(comma == std::string_view::npos ? gen_kwargs.size() : comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return make_error(ErrorCode::kInvalidArgument,
                        "gen_kwargs: \"" + std::string(item) + "\": expected key=value");
    }
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    if (key == "max_new_tokens") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.max_new_tokens, parse_count(key, value));
    } else if (key == "temperature") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.temperature, parse_number(key, value));
    } else if (key == "top_p") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.top_p, parse_number(key, value));
    } else if (key == "top_k") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.top_k, parse_count(key, value));
    } else if (key == "do_sample") {
      defaults.do_sample = parse_bool(value);
    } else if (key == "until") {
      defaults.until = {std::string(value)};
    } else if (key == "num_beams" && value == "1") {
      continue;
    } else {
      return make_error(
          ErrorCode::kInvalidArgument,
          "gen_kwargs: " + std::string(item) +
              ": expected max_new_tokens, temperature, top_p, top_k, do_sample, until, or "
              "num_beams=1");
    }
  }
  return defaults;
}

Result<engine::GenerationSettings> effective_generation(
    const tasks::GenerationDefaults& task, const protocol::EvaluationSettings& settings,
    const GenerationConfig& config, const text::Tokenizer& tokenizer, const Wrapper& wrapper) {
  engine::GenerationSettings effective;
  effective.max_new_tokens =
      settings.max_new_tokens.value_or(task.max_new_tokens.value_or(wrapper.most_tokens));
  effective.temperature =
      task.temperature.value_or(0.0);  // do_sample of a task is ignored: the temperature decides
  if (effective.temperature > 0)
    EVALCAR_RETURN_IF_ERROR(settle_draws(task, config, wrapper.draws, effective));
  effective.repetition_penalty = config.repetition_penalty;
  effective.seed = static_cast<std::uint64_t>(settings.seed);
  // The wrapper passes the tokenizer's single end token, whatever generation_config.json lists.
  const std::optional<std::int32_t> eos = tokenizer.eos_id();
  if (!eos.has_value()) {
    return make_error(ErrorCode::kCorruption,
                      "tokenizer_config.json: no eos_token, so no answer would ever end");
  }
  effective.stop_ids = {*eos};
  if (settings.compat != "strict") return effective;
  if (!config.wrong_end_ids.empty())
    return make_error(ErrorCode::kCorruption, config.wrong_end_ids);
  for (const std::int32_t id : config.end_ids) {
    const bool known = std::ranges::find(effective.stop_ids, id) != effective.stop_ids.end();
    if (!known) effective.stop_ids.push_back(id);
  }
  return effective;
}

std::string generation_json(const engine::GenerationSettings& settings,
                            const tasks::GenerationDefaults& task) {
  nlohmann::ordered_json json;
  json["until"] = task.until;
  json["max_new_tokens"] = settings.max_new_tokens;
  json["temperature"] = settings.temperature;
  json["top_p"] = task.top_p.has_value() ? nlohmann::ordered_json(*task.top_p)
                                         : nlohmann::ordered_json(nullptr);
  if (settings.temperature > 0) {
    json["top_p"] = settings.top_p;
    json["top_k"] = settings.top_k;
  }
  json["num_beams"] = 1;
  json["do_sample"] = settings.temperature > 0;
  json["repetition_penalty"] = settings.repetition_penalty;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace evalcar::service
