#include "evaluator/text/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "evaluator/text/jinja_eval.h"
#include "evaluator/text/jinja_parser.h"
#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/json_fields.h"
#include "evaluator/text/tokenizer_config.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = 1024 * 1024;
constexpr std::uint64_t kMaxFileBytes = 64 * 1024 * 1024;

using jinja::Runtime;
using jinja::Value;
using OrderedJson = nlohmann::ordered_json;  // a dict of Python keeps its order

Value value_of(Runtime& runtime, const OrderedJson& json, int depth) {
  if (depth > Runtime::kMaxValueDepth) return runtime.fail("the variables are nested too deep");
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
        return runtime.fail("an integer of more than 64 bits");
      return json.get<std::int64_t>();
    case OrderedJson::value_t::number_integer:
      return json.get<std::int64_t>();
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::string:
      return json.get<std::string>();
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(value_of(runtime, item, depth + 1));
      return jinja::make_list(runtime, std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, item] : json.items())
        items.emplace_back(Value(key), value_of(runtime, item, depth + 1));
      return jinja::make_dict(runtime, std::move(items));
    }
    default:
      return jinja::None{};
  }
}

std::string text_of(std::string_view text) {
  return is_valid_utf8(text) ? std::string(text) : replace_invalid_utf8(text);
}

// As lmms-eval hands messages over: a list of parts, the picture itself under "image".
OrderedJson parts_of(const Message& message) {
  OrderedJson content = OrderedJson::array();
  for (const Content& part : message.content) {
    if (part.type == Content::Type::kImage) {
      content.push_back({{"type", "image"}, {"image", "picture"}});
    } else {
      content.push_back({{"type", "text"}, {"text", text_of(part.text)}});
    }
  }
  return content;
}

// As vLLM hands them to a template that wants a text.
Result<OrderedJson> joined_text(const Message& message) {
  std::string text;
  for (std::size_t i = 0; i < message.content.size(); ++i) {
    const Content& part = message.content[i];
    if (part.type == Content::Type::kImage)
      return make_error(ErrorCode::kInvalidArgument, "a picture in a prompt of text alone");
    text += (i == 0 ? "" : "\n") + text_of(part.text);
  }
  return OrderedJson(std::move(text));
}

Result<OrderedJson> json_of(const std::vector<Message>& messages, ContentForm form) {
  OrderedJson list = OrderedJson::array();
  for (const Message& message : messages) {
    OrderedJson content = parts_of(message);
    if (form == ContentForm::kText) {
      EVALCAR_ASSIGN_OR_RETURN(content, joined_text(message));
    }
    list.push_back({{"role", text_of(message.role)}, {"content", std::move(content)}});
  }
  return list;
}

struct Source {
  std::string text;
  std::string file;
};

Result<std::optional<Source>> template_in_json(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const auto text, read_optional(files, path, kMaxFileBytes));
  if (!text) return std::optional<Source>();
  EVALCAR_ASSIGN_OR_RETURN(const nlohmann::json object, parse_json(*text, path));
  const auto found = object.is_object() ? template_of_field(object) : std::nullopt;
  return found ? std::optional(Source{*found, path}) : std::optional<Source>();
}

Result<std::optional<Source>> template_file(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(auto text, read_optional(files, path, kMaxTemplateBytes));
  return text ? std::optional(Source{std::move(*text), path}) : std::optional<Source>();
}

// transformers' order: what a processor's folder says, then what its tokenizer says.
Result<Source> find_source(const FileSystem& files, const std::string& dir,
                           const TokenizerConfig& config) {
  const bool has_processor = files.info_followed(join_path(dir, "preprocessor_config.json")) ||
                             files.info_followed(join_path(dir, "processor_config.json"));
  if (has_processor) {
    for (const char* name : {"processor_config.json", "chat_template.json"}) {
      EVALCAR_ASSIGN_OR_RETURN(auto found, template_in_json(files, join_path(dir, name)));
      if (found) return std::move(*found);
    }
  }
  // Of two files a processor takes the first, a tokenizer the second.
  std::array names{"chat_template.jinja", "additional_chat_templates/default.jinja"};
  if (!has_processor) std::ranges::reverse(names);
  for (const char* name : names) {
    EVALCAR_ASSIGN_OR_RETURN(auto found, template_file(files, join_path(dir, name)));
    if (found) return std::move(*found);
  }
  if (config.chat_template)
    return Source{*config.chat_template, join_path(dir, "tokenizer_config.json")};
  EVALCAR_ASSIGN_OR_RETURN(auto legacy,
                           template_in_json(files, join_path(dir, "chat_template.json")));
  if (legacy) return std::move(*legacy);
  return make_error(ErrorCode::kNotFound,
                    dir +
                        " has no chat template: neither chat_template.jinja nor "
                        "chat_template.json nor a \"chat_template\" in processor_config.json or "
                        "tokenizer_config.json. processor.save_pretrained() of transformers writes "
                        "one; copy it from the base model if the trainer does not save it");
}

// transformers' \{%-?\s*generation\s*-?%\} over the source.
bool has_generation_tag(std::string_view source) {
  const auto skip_blanks = [&](std::size_t at) {
    while (at < source.size() &&
           std::string_view(" \t\r\n\f\v").find(source[at]) != std::string_view::npos)
      ++at;
    return at;
  };
  for (std::size_t at = source.find("{%"); at != std::string_view::npos;
       at = source.find("{%", at + 1)) {
    std::size_t next = at + 2;
    if (source.substr(next).starts_with("-")) ++next;
    next = skip_blanks(next);
    if (!source.substr(next).starts_with("generation")) continue;
    next = skip_blanks(next + std::string_view("generation").size());
    if (source.substr(next).starts_with("%}") || source.substr(next).starts_with("-%}"))
      return true;
  }
  return false;
}

}  // namespace

struct ChatTemplate::State {
  std::string name;
  jinja::Block block;
  bool marks_answers = false;
  bool tells_time = false;
  std::map<std::string, std::string> special_tokens;  // "bos_token", …: variables of the template
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view name) {
  if (source.size() > kMaxTemplateBytes)
    return make_error(ErrorCode::kUnsupported,
                      std::string(name) + ": a chat template of " + std::to_string(source.size()) +
                          " bytes; at most " + std::to_string(kMaxTemplateBytes) + " are read");
  if (!is_valid_utf8(source))
    return make_error(ErrorCode::kCorruption, std::string(name) + ": not UTF-8");
  auto block = jinja::parse(source);
  if (!block) return with_context(std::move(block).error(), std::string(name));
  auto state = std::make_unique<State>();
  state->name = name;
  state->block = std::move(block).value();
  state->marks_answers = has_generation_tag(source);
  state->tells_time = source.find("strftime_now") != std::string_view::npos;
  return ChatTemplate(std::move(state));
}

Result<ChatTemplate> ChatTemplate::load(const FileSystem& files, const std::string& dir) {
  EVALCAR_ASSIGN_OR_RETURN(TokenizerConfig config, load_tokenizer_config(files, dir));
  EVALCAR_ASSIGN_OR_RETURN(const Source source, find_source(files, dir, config));
  EVALCAR_ASSIGN_OR_RETURN(ChatTemplate result, parse(source.text, source.file));
  result.state_->special_tokens = std::move(config.named_tokens);
  return result;
}

Result<std::string> ChatTemplate::render(const std::vector<Message>& messages,
                                         bool add_generation_prompt, ContentForm form) const {
  EVALCAR_ASSIGN_OR_RETURN(OrderedJson list, json_of(messages, form));
  const OrderedJson variables = {{"messages", std::move(list)},
                                 {"add_generation_prompt", add_generation_prompt}};
  return render_json(variables.dump());
}

bool ChatTemplate::tells_time() const { return state_->tells_time; }
bool ChatTemplate::marks_answers() const { return state_->marks_answers; }

Result<ChatTemplate::Marked> ChatTemplate::render_marked(const std::vector<Message>& messages,
                                                         ContentForm form) const {
  EVALCAR_ASSIGN_OR_RETURN(OrderedJson list, json_of(messages, form));
  const OrderedJson variables = {{"messages", std::move(list)}, {"add_generation_prompt", false}};
  return run(variables.dump(), /*mark=*/true);
}

Result<std::string> ChatTemplate::render_json(std::string_view variables_json) const {
  EVALCAR_ASSIGN_OR_RETURN(Marked rendered, run(variables_json, /*mark=*/false));
  return std::move(rendered.text);
}

Result<ChatTemplate::Marked> ChatTemplate::run(std::string_view variables_json, bool mark) const {
  OrderedJson variables;
  try {
    variables = OrderedJson::parse(variables_json);
  } catch (const OrderedJson::exception& error) {
    return make_error(ErrorCode::kInvalidArgument,
                      std::string("template variables: ") + error.what());
  }
  if (!variables.is_object())
    return make_error(ErrorCode::kInvalidArgument, "template variables: not a JSON object");
  Runtime runtime;
  Marked rendered;
  {
    jinja::Interpreter interpreter(runtime, std::time(nullptr));
    if (mark) interpreter.note_generation(rendered.answers);
    for (const char* name : {"tools", "documents"}) interpreter.set_variable(name, jinja::None{});
    for (const auto& [name, token] : state_->special_tokens) interpreter.set_variable(name, token);
    for (const auto& [name, value] : variables.items())
      interpreter.set_variable(name, value_of(runtime, value, 0));
    rendered.text = interpreter.render(state_->block);
  }
  if (runtime.failed())
    return make_error(ErrorCode::kUnsupported,
                      "chat template " + state_->name + ", " + runtime.error());
  return rendered;
}

}  // namespace evalcar::text
