// Lets the parity tests call the tokenizer and the chat templates: one JSON request a line on
// stdin, one JSON answer a line on stdout ({"error": …} where the call failed).
//   {"load": folder}                                   the tokenizer of the requests that follow
//   {"encode": text}                                   {"ids": […]}
//   {"decode": [ids], "skip": bool}                    {"text": …}
//   {"info": true}                                     {"eos": …, "pad": …, "size": …}
//   {"id_of": token}                                   {"id": …, "special": …}
//   {"categories": true}                               {"letters": […], "numbers": […]}: ranges
//   {"normalize": text}                                {"text": NFC}
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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
    if (!tokenizer_) return {{"error", "no tokenizer is loaded"}};
    return ask_tokenizer(request);
  }

 private:
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
