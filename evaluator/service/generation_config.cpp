#include "evaluator/service/generation_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/models/config_fields.h"

namespace evalcar::service {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxGenerationConfigBytes = 1U << 20U;
constexpr std::size_t kMostEndIds = 64;

/// Keys of generation_config.json that change an answer, with the value that does nothing.
struct NeutralKey {
  const char* key;
  double neutral;
};
constexpr std::array<NeutralKey, 12> kMustBeNeutral = {{{"no_repeat_ngram_size", 0},
                                                        {"encoder_no_repeat_ngram_size", 0},
                                                        {"encoder_repetition_penalty", 1},
                                                        {"min_length", 0},
                                                        {"min_new_tokens", 0},
                                                        {"penalty_alpha", 0},
                                                        {"guidance_scale", 1},
                                                        {"num_beam_groups", 1},
                                                        {"diversity_penalty", 0},
                                                        {"prompt_lookup_num_tokens", 0},
                                                        {"num_return_sequences", 1},
                                                        {"dola_layers", 0}}};
/// Those that change a drawn answer only.
constexpr std::array<NeutralKey, 5> kNeutralDraws = {
    {{"min_p", 0}, {"top_h", 0}, {"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}}};
constexpr std::array<const char*, 10> kMustBeAbsent = {
    "suppress_tokens",     "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id",
    "bad_words_ids",       "sequence_bias",
    "stop_strings",        "max_time",
    "watermarking_config", "exponential_decay_length_penalty"};

/// A value for a message. dump() of a hostile depth would overflow the stack: only plain values are
/// shown.
std::string short_text(const Json& value) {
  return value.is_primitive() ? value.dump(-1, ' ', false, Json::error_handler_t::replace)
                              : std::string(value.type_name());
}

/// The settings of one file, or of config.json's two places for them.
class Settings {
 public:
  Settings(std::string path, const Json& first, const Json* second = nullptr)
      : path_(std::move(path)), first_(first), second_(second) {}

  /// nullptr if nobody says.
  const Json* find(const char* key) const {
    for (const Json* const object : {&first_, second_}) {
      if (object == nullptr || !object->is_object()) continue;
      const auto found = object->find(key);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  bool is_neutral(const NeutralKey& known) const {
    const Json* const found = find(known.key);
    return found == nullptr || (found->is_number() && found->get<double>() == known.neutral);
  }
  std::string says(const char* key) const {
    return path_ + ": " + key + " = " + short_text(*find(key));
  }
  /// A number above 0, or nothing; kCorruption else.
  Result<std::optional<double>> positive(const char* key) const {
    const Json* const found = find(key);
    if (found == nullptr) return std::optional<double>();
    if (!found->is_number() || !(found->get<double>() > 0))
      return make_error(ErrorCode::kCorruption, says(key) + ", expected a number > 0");
    return std::optional(found->get<double>());
  }
  Result<std::optional<std::int64_t>> count(const char* key) const {
    const Json* const found = find(key);
    if (found == nullptr) return std::optional<std::int64_t>();
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > INT32_MAX)
      return make_error(ErrorCode::kCorruption, says(key) + ", expected a whole number >= 0");
    return std::optional(found->get<std::int64_t>());
  }

 private:
  std::string path_;
  const Json& first_;
  const Json* second_;
};

/// A token, a list of tokens, or nothing.
Result<std::vector<std::int32_t>> read_end_ids(const Settings& settings) {
  constexpr const char* kKey = "eos_token_id";
  std::vector<std::int32_t> ids;
  const Json* const found = settings.find(kKey);
  if (found == nullptr) return ids;
  const Json list = found->is_array() ? *found : Json::array({*found});
  const auto is_token = [](const Json& id) {
    return id.is_number_unsigned() && id.get<std::uint64_t>() <= INT32_MAX;
  };
  if (list.size() > kMostEndIds || !std::ranges::all_of(list, is_token))
    return make_error(ErrorCode::kCorruption,
                      settings.says(kKey) + ", expected a token's number, or a list of at most " +
                          std::to_string(kMostEndIds));
  for (const Json& id : list) ids.push_back(id.get<std::int32_t>());
  return ids;
}

template <typename T>
void take(Result<T> read, T& value, std::string& wrong) {
  if (read.has_value()) {
    value = std::move(*read);
  } else {
    wrong = read.error().message;
  }
}

Result<GenerationConfig> read_settings(const Settings& settings) {
  constexpr const char* kChanges = " changes the answers and is not supported; expected it absent";
  for (const NeutralKey& known : kMustBeNeutral) {
    if (!settings.is_neutral(known))
      return make_error(ErrorCode::kUnsupported, settings.says(known.key) + kChanges);
  }
  for (const char* const key : kMustBeAbsent) {
    const Json* const found = settings.find(key);
    if (found != nullptr && !found->empty())
      return make_error(ErrorCode::kUnsupported, settings.says(key) + kChanges);
  }
  GenerationConfig config;
  EVALCAR_ASSIGN_OR_RETURN(const auto penalty, settings.positive("repetition_penalty"));
  config.repetition_penalty = penalty.value_or(config.repetition_penalty);
  take(read_end_ids(settings), config.end_ids, config.wrong_end_ids);
  take(settings.count("top_k"), config.top_k, config.wrong_top_k);
  take(settings.positive("top_p"), config.top_p, config.wrong_top_p);
  for (const NeutralKey& known : kNeutralDraws) {
    if (config.unsupported_draw.empty() && !settings.is_neutral(known))
      config.unsupported_draw = settings.says(known.key);
  }
  return config;
}

/// The object of a JSON file; nullopt if there is no such file.
Result<std::optional<Json>> read_object(const FileSystem& files, const std::string& path) {
  Result<std::string> content = read_file(files, path, kMaxGenerationConfigBytes);
  if (!content.has_value()) {
    if (content.error().code == ErrorCode::kNotFound) return std::optional<Json>();
    return std::move(content).error();
  }
  Json json = Json::parse(*content, nullptr, false);
  if (!json.is_object()) return make_error(ErrorCode::kCorruption, path + ": not a JSON object");
  return std::optional(std::move(json));
}

}  // namespace

Result<GenerationConfig> load_generation_config(const FileSystem& files, const std::string& dir) {
  const std::string path = join_path(dir, "generation_config.json");
  EVALCAR_ASSIGN_OR_RETURN(const auto own, read_object(files, path));
  if (own.has_value()) return read_settings(Settings(path, *own));
  const auto model = models::read_config(files, dir);
  if (!model.has_value()) {
    if (model.error().code == ErrorCode::kNotFound) return GenerationConfig{};
    return model.error();
  }
  const auto text = model->find("text_config");
  return read_settings(
      Settings(join_path(dir, "config.json"), *model, text == model->end() ? nullptr : &*text));
}

}  // namespace evalcar::service
