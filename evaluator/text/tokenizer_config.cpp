#include "evaluator/text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/text/json_fields.h"

namespace evalcar::text {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 64 * 1024 * 1024;
constexpr const char* kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// "x" or {"content": "x", …}.
std::optional<std::string> token_content(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  return string_field(value, "content");
}

Result<nlohmann::json> load_object(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const auto text, read_optional(files, path, kMaxConfigBytes));
  if (!text) return nlohmann::json::object();
  EVALCAR_ASSIGN_OR_RETURN(auto value, parse_json(*text, path));
  if (!value.is_object()) return make_error(ErrorCode::kCorruption, path + " is not a JSON object");
  return value;
}

// What transformers 5 takes as a token with a name of the model's own, and hands to the template:
// each text under "…_token", and all of extra_special_tokens where that is an object; where there
// are none, those that it saved as such.
void read_names_of_model(const nlohmann::json& object, TokenizerConfig& config) {
  bool any = false;
  const auto name = [&](const std::string& key, const nlohmann::json& value) {
    if (std::ranges::find(kNamed, key) != std::end(kNamed)) return;
    auto content = token_content(value);
    if (!content) return;
    config.named_tokens[key] = std::move(*content);
    any = true;
  };
  const auto name_all = [&](const char* list) {
    const auto found = object.find(list);
    if (found == object.end() || !found->is_object()) return;
    for (const auto& [key, value] : found->items()) name(key, value);
  };
  for (const auto& [key, value] : object.items())
    if (key.ends_with("_token")) name(key, value);
  name_all("extra_special_tokens");
  if (!any) name_all("model_specific_special_tokens");
}

void read_named(const nlohmann::json& object, TokenizerConfig& config) {
  for (const char* name : kNamed) {
    const auto it = object.find(name);
    if (it == object.end()) continue;
    if (auto content = token_content(*it)) {
      config.named_tokens[name] = std::move(*content);
    } else {
      config.named_tokens.erase(name);
    }
  }
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto it = object.find(name);
    if (it == object.end() || !it->is_structured()) continue;
    for (const auto& item : *it)
      if (auto content = token_content(item))
        config.additional_tokens.push_back(std::move(*content));
  }
}

std::vector<AddedToken> added_tokens_of(const nlohmann::json& object) {
  std::vector<std::pair<std::int64_t, AddedToken>> numbered;
  const auto it = object.find("added_tokens_decoder");
  if (it == object.end() || !it->is_object()) return {};
  for (const auto& [key, value] : it->items()) {
    std::int64_t id = 0;
    std::from_chars(key.data(), key.data() + key.size(), id);
    if (auto token = parse_added_token(value)) numbered.emplace_back(id, std::move(*token));
  }
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : numbered) tokens.push_back(std::move(token));
  return tokens;
}

}  // namespace

Result<std::optional<std::string>> read_optional(const FileSystem& files, const std::string& path,
                                                 std::uint64_t limit_bytes) {
  auto text = read_file(files, path, limit_bytes);
  if (text) return std::optional(std::move(text).value());
  if (text.error().code == ErrorCode::kNotFound) return std::optional<std::string>();
  return std::move(text).error();
}

std::optional<std::string> template_of_field(const nlohmann::json& object) {
  const auto it = object.find("chat_template");
  if (it == object.end()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return std::nullopt;
  for (const auto& item : *it)
    if (string_field(item, "name") == "default") return string_field(item, "template");
  return std::nullopt;
}

Result<TokenizerConfig> load_tokenizer_config(const FileSystem& files, const std::string& dir) {
  EVALCAR_ASSIGN_OR_RETURN(const auto object,
                           load_object(files, join_path(dir, "tokenizer_config.json")));
  TokenizerConfig config;
  read_named(object, config);
  read_names_of_model(object, config);
  config.added_tokens = added_tokens_of(object);
  if (!object.contains("added_tokens_decoder")) {  // before transformers 4.34
    EVALCAR_ASSIGN_OR_RETURN(const auto map,
                             load_object(files, join_path(dir, "special_tokens_map.json")));
    read_named(map, config);
    read_names_of_model(map, config);
  }
  config.split_special_tokens = bool_field(object, "split_special_tokens").value_or(false);
  config.chat_template = template_of_field(object);
  return config;
}

}  // namespace evalcar::text
