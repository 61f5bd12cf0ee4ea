#include "evaluator/tasks/prompt.h"

#include <algorithm>
#include <array>
#include <set>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/python_text.h"
#include "evaluator/tasks/choices.h"
#include "evaluator/tasks/conversation.h"

namespace evalcar::tasks {
namespace {

std::string setting_text(const Setting& setting) {
  if (const auto* text = std::get_if<std::string>(&setting)) return *text;
  if (const auto* flag = std::get_if<bool>(&setting)) return *flag ? "True" : "False";
  if (const auto* whole = std::get_if<std::int64_t>(&setting)) return std::to_string(*whole);
  return python_str(Value(std::get<double>(setting)));
}

const Setting* find_setting(const Settings& settings, std::string_view name) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const auto& s) { return s.first == name; });
  return found == settings.end() ? nullptr : &found->second;
}

std::string setting_or_empty(const Settings& settings, std::string_view name) {
  const Setting* setting = find_setting(settings, name);
  return setting == nullptr ? std::string() : setting_text(*setting);
}

Result<std::string> filtered(const Value& value, std::string_view filter) {
  if (filter == "join" || filter == "letters") {
    std::vector<std::string> items;
    if (value.is_array()) {
      for (const Value& item : value) items.push_back(python_str(item));
    } else if (value.is_string()) {
      EVALCAR_ASSIGN_OR_RETURN(items,
                               metrics::parse_python_list(value.get_ref<const std::string&>()));
    } else {
      return make_error(ErrorCode::kCorruption, "expected a list");
    }
    std::string out;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (filter == "join") {
        out += (i == 0 ? "" : ", ") + items[i];
      } else {
        out += (i == 0 ? "" : "\n") + metrics::option_letter(i) + ". " + items[i];
      }
    }
    return out;
  }
  const std::string text = python_str(value);
  if (filter.empty()) return text;
  if (filter == "strip") return metrics::strip_utf8(text);
  const metrics::Text decoded = metrics::decode_utf8(text);
  if (filter == "capitalize") return metrics::encode_utf8(metrics::capitalize(decoded));
  if (filter == "lower") return metrics::encode_utf8(metrics::lower(decoded));
  if (filter == "upper") return metrics::encode_utf8(metrics::upper(decoded));
  return make_error(ErrorCode::kInternal, "unknown filter " + std::string(filter));
}

// Calls literal(text) and field(name, filter) for the parts of a template that was checked when it
// was read.
template <typename Literal, typename Field>
Status walk_template(std::string_view text, Literal literal, Field field) {
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      literal(text.substr(i, 1));
      i += 2;
    } else if (c == '{') {
      const std::size_t end = text.find('}', i);
      if (end == std::string_view::npos)
        return make_error(ErrorCode::kInternal, "a template with an open brace");
      const std::string_view inner = text.substr(i + 1, end - i - 1);
      const std::size_t bar = inner.find('|');
      EVALCAR_RETURN_IF_ERROR(field(inner.substr(0, bar), bar == std::string_view::npos
                                                              ? std::string_view()
                                                              : inner.substr(bar + 1)));
      i = end + 1;
    } else {
      literal(text.substr(i, 1));
      ++i;
    }
  }
  return {};
}

// --- MMMU
// ---------------------------------------------------------------------------------------------------------

Result<std::string> text_column(const Value& document, const char* name) {
  const auto found = document.find(name);
  if (found == document.end())
    return make_error(ErrorCode::kInvalidArgument, std::string("no column \"") + name + "\"");
  if (!found->is_string())
    return make_error(ErrorCode::kCorruption, std::string("column \"") + name + "\" is not a text");
  return found->get<std::string>();
}

Result<std::string> lettered_options(const Value& document) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string literal, text_column(document, "options"));
  auto text = filtered(Value(literal), "letters");
  if (!text) return with_context(text.error(), "column \"options\"");
  return text;
}

Result<std::string> mmmu_plain(const Value& document, const std::string& choice_prompt,
                               const std::string& open_prompt) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string question, text_column(document, "question"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string type, text_column(document, "question_type"));
  if (type != "multiple-choice") return question + "\n\n" + open_prompt;
  EVALCAR_ASSIGN_OR_RETURN(const std::string options, lettered_options(document));
  return question + "\n" + options + "\n\n" + choice_prompt;
}

Result<std::string> mmmu_text(const Value& document, const Settings& settings) {
  if (setting_or_empty(settings, "format") != "qwen3_vl") {
    return mmmu_plain(document, setting_or_empty(settings, "multiple_choice_prompt"),
                      setting_or_empty(settings, "open_ended_prompt"));
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string question, text_column(document, "question"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string type, text_column(document, "question_type"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string options, lettered_options(document));
  const bool choice = type == "multiple-choice";
  return setting_or_empty(settings, "pre_prompt") + question + "\nOptions:\n" + options + "\n" +
         setting_or_empty(settings, choice ? "post_prompt" : "open_ended_prompt");
}

// The columns of the pictures that <image N> tokens in question and options name, sorted by name.
Result<std::set<std::string>> mmmu_image_columns(const Value& document) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string prompt, mmmu_plain(document, "", ""));
  const metrics::Text text = metrics::decode_utf8(prompt);
  constexpr metrics::TextView kOpen = U"<image ";
  std::set<std::string> columns;
  for (std::size_t at = text.find(kOpen); at != metrics::Text::npos;
       at = text.find(kOpen, at + 1)) {
    std::size_t end = at + kOpen.size();
    while (end < text.size() && metrics::is_decimal(text[end])) ++end;
    if (end > at + kOpen.size() && end < text.size() && text[end] == U'>') {
      columns.insert("image_" + metrics::encode_utf8(metrics::TextView(text).substr(
                                    at + kOpen.size(), end - at - kOpen.size())));
    }
  }
  return columns;
}

std::string with_plain_image_tokens(const std::string& text) {
  metrics::Text out = metrics::decode_utf8(text);
  for (char32_t n = U'1'; n <= U'7'; ++n)
    out = metrics::replace_all(out, metrics::Text(U"<image ") + n + U">", U"<image>");
  return metrics::encode_utf8(out);
}

text::Content text_content(std::string text) {
  return {text::Content::Type::kText, std::move(text)};
}

// Texts and pictures in turn: the text before the i-th <image> goes before the i-th picture, the
// last text goes last, and what stands between further tokens is lost, as in lmms-eval.
std::vector<text::Content> interleave(const std::string& text, std::size_t pictures) {
  std::vector<std::string> segments;
  constexpr std::string_view kToken = "<image>";
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(kToken, at);
    segments.push_back(text.substr(at, found == std::string::npos ? found : found - at));
    if (found == std::string::npos) break;
    at = found + kToken.size();
  }
  std::vector<text::Content> content;
  for (std::size_t i = 0; i < pictures; ++i) {
    if (i + 1 < segments.size()) {
      std::string segment = metrics::strip_utf8(segments[i]);
      if (!segment.empty()) content.push_back(text_content(std::move(segment)));
    }
    content.push_back({text::Content::Type::kImage, {}});
  }
  content.push_back(text_content(metrics::strip_utf8(segments.back())));
  return content;
}

Result<Prompt> build_mmmu(const Settings& settings, const DataSet& data, const Value& document,
                          std::int64_t doc_id) {
  Prompt prompt;
  prompt.doc_id = doc_id;
  EVALCAR_ASSIGN_OR_RETURN(prompt.input, mmmu_text(document, settings));
  EVALCAR_ASSIGN_OR_RETURN(const std::set<std::string> columns, mmmu_image_columns(document));
  for (const std::string& column : columns) {
    const auto known = std::any_of(data.columns().begin(), data.columns().end(),
                                   [&](const Column& c) { return c.name == column; });
    if (!known)
      return make_error(ErrorCode::kCorruption,
                        "its text names a picture for which there is no column \"" + column + "\"");
    EVALCAR_ASSIGN_OR_RETURN(std::vector<std::string> pictures, data.images(doc_id, column));
    if (pictures.empty())
      return make_error(ErrorCode::kCorruption,
                        "its text names a picture, but column \"" + column + "\" is empty");
    prompt.images.push_back(std::move(pictures.front()));
  }
  text::Message message{"user", {}};
  if (setting_or_empty(settings, "format") == "qwen3_vl") {
    message.content.assign(prompt.images.size(), {text::Content::Type::kImage, {}});
    message.content.push_back(text_content(prompt.input));
  } else {
    message.content = interleave(with_plain_image_tokens(prompt.input), prompt.images.size());
  }
  prompt.messages.push_back(std::move(message));
  return prompt;
}

// --- MME
// ----------------------------------------------------------------------------------------------------------

// Where the variant adds words of its own, the data set's request for yes or no goes.
Result<std::string> mme_text(const Value& document, const Settings& settings) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string question, text_column(document, "question"));
  const std::string before = setting_or_empty(settings, "pre_prompt");
  const std::string after = setting_or_empty(settings, "post_prompt");
  const std::string asked = metrics::strip_utf8(question);
  if (before.empty() && after.empty()) return asked;
  return before +
         metrics::encode_utf8(
             metrics::replace_all(metrics::decode_utf8(asked), U" Please answer yes or no.", U"")) +
         after;
}

// --- templates
// ----------------------------------------------------------------------------------------------------

Result<std::string> text_of(const Definition& definition, const Settings& settings,
                            const Value& document) {
  if (definition.prompt.builder == "mmmu") return mmmu_text(document, settings);
  if (definition.prompt.builder == "mme") return mme_text(document, settings);
  return render_template(definition.prompt.text, settings, document);
}

// The pictures first, then the text.
Result<Prompt> build_pictures_and_text(const Definition& definition, const Settings& settings,
                                       const DataSet& data, const Value& document,
                                       std::int64_t doc_id) {
  Prompt prompt;
  prompt.doc_id = doc_id;
  auto text = text_of(definition, settings, document);
  if (!text.has_value()) return with_context(std::move(text).error(), data.place_of(doc_id));
  prompt.input = std::move(text).value();
  for (const std::string& column : definition.image_columns) {
    EVALCAR_ASSIGN_OR_RETURN(std::vector<std::string> pictures, data.images(doc_id, column));
    for (std::string& picture : pictures) prompt.images.push_back(std::move(picture));
  }
  text::Message message{
      "user", std::vector<text::Content>(prompt.images.size(), {text::Content::Type::kImage, {}})};
  message.content.push_back(text_content(prompt.input));
  prompt.messages.push_back(std::move(message));
  return prompt;
}

// --- what is scored as it stands
// -------------------------------------------------------------------------------------

// The texts alone: pictures may be data: URLs of any size.
std::string shown(const std::vector<text::Message>& messages) {
  std::string out;
  for (const text::Message& message : messages) {
    out += (out.empty() ? "" : "\n") + message.role + ": ";
    for (const text::Content& part : message.content)
      out += part.type == text::Content::Type::kImage ? "<image>" : part.text;
  }
  return out;
}

Result<Prompt> build_conversation(const Definition& definition, const DataSet& data,
                                  const Value& document, std::int64_t doc_id) {
  const std::string& column = definition.file.request.messages_column;
  std::vector<std::string> pictures;
  for (const std::string& images : definition.image_columns) {
    EVALCAR_ASSIGN_OR_RETURN(std::vector<std::string> found, data.images(doc_id, images));
    for (std::string& picture : found) pictures.push_back(std::move(picture));
  }
  auto read =
      read_conversation(document.value(column, Value()), std::move(pictures),
                        [&](std::string_view name) { return data.named_image(doc_id, name); });
  if (!read.has_value())
    return with_context(std::move(read).error(),
                        data.place_of(doc_id) + ": column \"" + column + "\"");
  Prompt prompt{.doc_id = doc_id,
                .messages = std::move(read->messages),
                .images = std::move(read->images),
                .input = {}};
  prompt.input = shown(prompt.messages);
  return prompt;
}

Status add_continuations(const Definition& definition, const Value& document,
                         std::string_view model_family, Prompt& prompt) {
  const RequestDefinition& request = definition.file.request;
  if (request.kind == RequestKind::kMultipleChoice) {
    EVALCAR_ASSIGN_OR_RETURN(prompt.continuations, choices_of(definition, document, model_family));
    // Known here, a wrong target costs no work of the model.
    EVALCAR_RETURN_IF_ERROR(right_choices(definition, document, prompt.continuations));
  } else if (definition.target_text) {
    prompt.continuations = {*definition.target_text};
  } else {
    const Value target = document.value(definition.target_column, Value());
    if (!is_scalar(target))
      return make_error(ErrorCode::kCorruption, "column \"" + definition.target_column +
                                                    "\" holds " + python_json(target) +
                                                    "; expected a text or a number");
    prompt.continuations = {python_str(target)};
  }
  for (std::string& continuation : prompt.continuations) continuation.insert(0, request.delimiter);
  return {};
}

Result<Prompt> build_any(const Definition& definition, const Settings& settings,
                         const DataSet& data, const Value& document, std::int64_t doc_id,
                         std::string_view model_family) {
  const RequestKind kind = definition.file.request.kind;
  if (kind == RequestKind::kLoss) return build_conversation(definition, data, document, doc_id);
  auto prompt = definition.prompt.builder == "mmmu"
                    ? build_mmmu(settings, data, document, doc_id)
                    : build_pictures_and_text(definition, settings, data, document, doc_id);
  if (!prompt.has_value()) return prompt;
  if (kind == RequestKind::kMultipleChoice || kind == RequestKind::kLoglikelihood) {
    Status added = add_continuations(definition, document, model_family, *prompt);
    if (!added.has_value()) return with_context(std::move(added).error(), data.place_of(doc_id));
  }
  return prompt;
}

}  // namespace

const Settings& variant_of(const PromptDefinition& prompt, std::string_view model_family) {
  static const Settings kNone;
  const auto find = [&](std::string_view name) {
    return std::find_if(prompt.variants.begin(), prompt.variants.end(),
                        [&](const auto& v) { return v.first == name; });
  };
  auto found = find(model_family);
  if (found == prompt.variants.end()) found = find("default");
  return found == prompt.variants.end() ? kNone : found->second;
}

std::vector<std::string> template_columns(std::string_view text, const Settings& settings) {
  std::vector<std::string> columns;
  const Status walked = walk_template(
      text, [](std::string_view) {},
      [&](std::string_view name, std::string_view) -> Status {
        if (find_setting(settings, name) == nullptr &&
            std::find(columns.begin(), columns.end(), name) == columns.end()) {
          columns.emplace_back(name);
        }
        return {};
      });
  return walked ? columns : std::vector<std::string>();
}

Result<std::string> render_template(std::string_view text, const Settings& settings,
                                    const Value& document) {
  std::string out;
  EVALCAR_RETURN_IF_ERROR(walk_template(
      text, [&](std::string_view literal) { out += literal; },
      [&](std::string_view name, std::string_view filter) -> Status {
        Value value;
        if (const Setting* setting = find_setting(settings, name)) {
          value = setting_text(*setting);
        } else if (const auto found = document.find(std::string(name)); found != document.end()) {
          value = *found;
        } else {
          return make_error(ErrorCode::kCorruption, "has no column \"" + std::string(name) + "\"");
        }
        if (value.is_null())
          return make_error(ErrorCode::kCorruption,
                            "column \"" + std::string(name) + "\" is empty (null)");
        auto part = filtered(value, filter);
        if (!part) return with_context(part.error(), "column \"" + std::string(name) + "\"");
        out += *part;
        return {};
      }));
  return out;
}

Result<std::string> prompt_text(const Definition& definition, const Value& document,
                                std::string_view model_family) {
  return text_of(definition, variant_of(definition.prompt, model_family), document);
}

Result<Prompt> build_prompt(const Definition& definition, const DataSet& data, std::int64_t doc_id,
                            std::string_view model_family) {
  EVALCAR_ASSIGN_OR_RETURN(const Value document, data.row(doc_id));
  const Settings& settings = variant_of(definition.prompt, model_family);
  auto prompt = build_any(definition, settings, data, document, doc_id, model_family);
  if (!prompt)
    return with_context(prompt.error(),
                        definition.file.name + ": document " + std::to_string(doc_id));
  return prompt;
}

}  // namespace evalcar::tasks
