#include "evaluator/service/generation.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

namespace evalcar::service {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxGenerationConfigBytes = 1U << 20U;

/// Keys of generation_config.json that change a greedy answer, with the value that does nothing.
struct NeutralKey {
  const char* key;
  double neutral;
};
constexpr std::array<NeutralKey, 11> kMustBeNeutral = {{{"no_repeat_ngram_size", 0},
                                                        {"encoder_no_repeat_ngram_size", 0},
                                                        {"encoder_repetition_penalty", 1},
                                                        {"min_length", 0},
                                                        {"min_new_tokens", 0},
                                                        {"penalty_alpha", 0},
                                                        {"guidance_scale", 1},
                                                        {"num_beam_groups", 1},
                                                        {"diversity_penalty", 0},
                                                        {"prompt_lookup_num_tokens", 0},
                                                        {"dola_layers", 0}}};
constexpr std::array<const char*, 7> kMustBeAbsent = {"suppress_tokens",
                                                      "begin_suppress_tokens",
                                                      "forced_bos_token_id",
                                                      "forced_eos_token_id",
                                                      "bad_words_ids",
                                                      "sequence_bias",
                                                      "exponential_decay_length_penalty"};

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

/// A value for a message. dump() of a hostile depth would overflow the stack: only plain values are
/// shown.
std::string short_text(const Json& value) {
  return value.is_primitive() ? value.dump(-1, ' ', false, Json::error_handler_t::replace)
                              : std::string(value.type_name());
}

bool parse_bool(std::string_view text) { return text == "true" || text == "True"; }

}  // namespace

Result<GenerationConfig> load_generation_config(const FileSystem& files, const std::string& dir) {
  const std::string path = join_path(dir, "generation_config.json");
  Result<std::string> content = read_file(files, path, kMaxGenerationConfigBytes);
  if (!content.has_value()) {
    if (content.error().code == ErrorCode::kNotFound) return GenerationConfig{};
    return std::move(content).error();
  }
  const Json json = Json::parse(*content, nullptr, false);
  if (!json.is_object()) return make_error(ErrorCode::kCorruption, path + ": not a JSON object");
  for (const NeutralKey& known : kMustBeNeutral) {
    const auto found = json.find(known.key);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_number() || found->get<double>() != known.neutral) {
      return make_error(ErrorCode::kUnsupported,
                        path + ": " + known.key + " = " + short_text(*found) +
                            " changes the answers and is not supported; expected it absent");
    }
  }
  for (const char* const key : kMustBeAbsent) {
    const auto found = json.find(key);
    if (found != json.end() && !found->is_null() && !found->empty()) {
      return make_error(
          ErrorCode::kUnsupported,
          path + ": " + key + " changes the answers and is not supported; expected it absent");
    }
  }
  GenerationConfig config;
  if (const auto penalty = json.find("repetition_penalty");
      penalty != json.end() && !penalty->is_null()) {
    if (!penalty->is_number() || !(penalty->get<double>() > 0)) {
      return make_error(
          ErrorCode::kCorruption,
          path + ": repetition_penalty = " + short_text(*penalty) + ", expected a number > 0");
    }
    config.repetition_penalty = penalty->get<double>();
  }
  return config;
}

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
    if (key == "max_new_tokens" || key == "max_gen_toks") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.max_new_tokens, parse_count(key, value));
    } else if (key == "temperature") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.temperature, parse_number(key, value));
    } else if (key == "top_p") {
      EVALCAR_ASSIGN_OR_RETURN(defaults.top_p, parse_number(key, value));
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
              ": expected max_new_tokens, temperature, top_p, do_sample, until, or num_beams=1");
    }
  }
  return defaults;
}

Result<engine::GenerationSettings> effective_generation(
    const tasks::GenerationDefaults& task, const protocol::EvaluationSettings& settings,
    const GenerationConfig& config, const text::Tokenizer& tokenizer, std::int64_t most_tokens) {
  engine::GenerationSettings effective;
  effective.max_new_tokens =
      settings.max_new_tokens.value_or(task.max_new_tokens.value_or(most_tokens));
  effective.temperature =
      task.temperature.value_or(0.0);  // do_sample of a task is ignored: the temperature decides
  effective.top_p = task.top_p.value_or(1.0);
  effective.repetition_penalty = config.repetition_penalty;
  effective.seed = static_cast<std::uint64_t>(settings.seed);
  // The wrapper passes the tokenizer's single end token, whatever generation_config.json lists.
  const std::optional<std::int32_t> eos = tokenizer.eos_id();
  if (!eos.has_value()) {
    return make_error(ErrorCode::kCorruption,
                      "tokenizer_config.json: no eos_token, so no answer would ever end");
  }
  effective.stop_ids = {*eos};
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
  json["num_beams"] = 1;
  json["do_sample"] = settings.temperature > 0;
  json["repetition_penalty"] = settings.repetition_penalty;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace evalcar::service
