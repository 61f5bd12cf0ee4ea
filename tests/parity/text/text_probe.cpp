// Lets the parity tests call the tokenizer and the chat templates: one JSON request a line on
// stdin, one JSON answer a line on stdout ({"error": …} where the call failed).
//   {"load": folder}                                   the tokenizer of the requests that follow
//   {"encode": text}                                   {"ids": […]}
//   {"decode": [ids], "skip": bool}                    {"text": …}
//   {"info": true}                                     {"eos": …, "pad": …, "size": …}
//   {"id_of": token}                                   {"id": …, "special": …}
//   {"categories": true}                               {"letters": […], "numbers": […]}: ranges
//   {"normalize": text}                                {"text": NFC}
//   {"template": source, "variables": "{…}"}           {"text": …}; the variables as JSON text
//   {"chat": folder, "messages": [{"role", "content": [text or null for a picture]}],
//    "add_generation_prompt": bool}                    {"text": …}
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "evaluator/text/chat_template.h"
#include "evaluator/text/tokenizer.h"
#include "evaluator/text/unicode.h"

namespace {

using nlohmann::json;

json error_of(const evalcar::Error& error) {
  return {{"error", error.message}, {"code", std::string(evalcar::error_code_name(error.code))}};
}

json optional_id(std::optional<std::int32_t> id) { return id ? json(*id) : json(); }

json ranges_of(const char* category) {
  json list = json::array();
  for (const auto& [first, last] : evalcar::text::category_ranges(category))
    list.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last)});
  return list;
}

class Probe {
 public:
  json answer(const json& request) {
    if (request.contains("load")) return load(request["load"]);
    if (request.contains("categories"))
      return {{"letters", ranges_of("L")}, {"numbers", ranges_of("N")}, {"marks", ranges_of("M")}};
    if (request.contains("normalize")) {
      auto text = evalcar::text::normalize(request["normalize"].get<std::string>(),
                                           evalcar::text::NormalForm::kNfc);
      return text ? json{{"text", *text}} : error_of(text.error());
    }
    if (request.contains("template")) {
      const auto parsed =
          evalcar::text::ChatTemplate::parse(request["template"].get<std::string>(), "probe");
      if (!parsed) return error_of(parsed.error());
      // The request's own text, so that the order of keys is kept.
      return text_or_error(parsed->render_json(request["variables"].get<std::string>()));
    }
    if (request.contains("chat")) return chat(request);
    if (!tokenizer_) return {{"error", "no tokenizer is loaded"}};
    return ask_tokenizer(request);
  }

 private:
  static json text_or_error(const evalcar::Result<std::string>& text) {
    return text ? json{{"text", *text}} : error_of(text.error());
  }

  json chat(const json& request) const {
    using evalcar::text::Content;
    const auto loaded =
        evalcar::text::ChatTemplate::load(files_, request["chat"].get<std::string>());
    if (!loaded) return error_of(loaded.error());
    std::vector<evalcar::text::Message> messages;
    for (const auto& message : request["messages"]) {
      messages.push_back({message["role"], {}});
      for (const auto& part : message["content"]) {
        messages.back().content.push_back(
            part.is_null() ? Content{Content::Type::kImage, ""}
                           : Content{Content::Type::kText, part.get<std::string>()});
      }
    }
    return text_or_error(loaded->render(messages, request["add_generation_prompt"].get<bool>()));
  }

  json load(const std::string& folder) {
    auto loaded = evalcar::text::Tokenizer::load(files_, folder);
    if (!loaded) return error_of(loaded.error());
    tokenizer_.emplace(std::move(loaded).value());
    return {{"ok", true}};
  }

  json ask_tokenizer(const json& request) const {
    if (request.contains("encode")) {
      const auto ids = tokenizer_->encode(request["encode"].get<std::string>());
      return ids ? json{{"ids", *ids}} : error_of(ids.error());
    }
    if (request.contains("decode"))
      return {{"text", tokenizer_->decode(request["decode"].get<std::vector<std::int32_t>>(),
                                          request.value("skip", false))}};
    if (request.contains("id_of")) {
      const auto id = tokenizer_->id_of(request["id_of"].get<std::string>());
      return {{"id", optional_id(id)}, {"special", id && tokenizer_->is_special(*id)}};
    }
    return {{"eos", optional_id(tokenizer_->eos_id())},
            {"pad", optional_id(tokenizer_->pad_id())},
            {"size", tokenizer_->size()}};
  }

  evalcar::RealFileSystem files_;
  std::optional<evalcar::text::Tokenizer> tokenizer_;
};

}  // namespace

int main() {
  Probe probe;
  for (std::string line; std::getline(std::cin, line);) {
    json answer;
    try {
      answer = probe.answer(json::parse(line));
    } catch (const json::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
