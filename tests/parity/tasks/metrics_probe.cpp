// Lets Python call the scorers: one JSON request a line on stdin, one JSON answer a line on stdout.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/python_number.h"
#include "evaluator/metrics/python_random.h"
#include "evaluator/metrics/python_text.h"
#include "evaluator/metrics/statistics.h"
#include "evaluator/metrics/text_scorers.h"

namespace {

using nlohmann::json;
using namespace evalcar::metrics;

json optional_number(std::optional<double> value) { return value ? json(*value) : json(nullptr); }

json answer(const json& request) {
  const auto op = request.at("op").get<std::string>();
  const auto text = [&](const char* key) { return request.at(key).get<std::string>(); };
  const auto texts = [&](const char* key) {
    return request.at(key).get<std::vector<std::string>>();
  };
  const auto numbers = [&](const char* key) { return request.at(key).get<std::vector<double>>(); };
  if (op == "lower") return encode_utf8(lower(decode_utf8(text("text"))));
  if (op == "upper") return encode_utf8(upper(decode_utf8(text("text"))));
  if (op == "capitalize") return encode_utf8(capitalize(decode_utf8(text("text"))));
  if (op == "strip") return strip_utf8(text("text"));
  if (op == "split") return encode_utf8(collapse_whitespace(decode_utf8(text("text"))));
  if (op == "repr") return repr(text("text"));
  if (op == "reasoning") return strip_reasoning_tags(text("text"));
  if (op == "float") {
    const auto value = parse_float(decode_utf8(text("text")));
    return value ? json(float_repr(*value)) : json(nullptr);
  }
  if (op == "float_repr") return float_repr(request.at("value").get<double>());
  if (op == "round")
    return round_to(request.at("value").get<double>(), request.at("digits").get<int>());
  if (op == "choices") {
    PythonRandom random(request.at("seed").get<std::int64_t>());
    json result = json::array();
    for (const auto& size : request.at("sizes"))
      result.push_back(random.choice(size.get<std::size_t>()));
    return result;
  }
  if (op == "samples") {
    PythonRandom random(request.at("seed").get<std::int64_t>());
    json result = json::array();
    for (const auto& [size, count] :
         request.at("draws").get<std::vector<std::pair<std::size_t, std::size_t>>>())
      result.push_back(random.sample(size, count));
    return result;
  }
  if (op == "randoms") {
    PythonRandom random(request.at("seed").get<std::int64_t>());
    json result = json::array();
    for (int i = 0; i < request.at("count").get<int>(); ++i) result.push_back(random.random());
    return result;
  }
  if (op == "anls") return optional_number(anls(texts("references"), text("prediction")));
  if (op == "exact_match") {
    return exact_match(texts("references"), text("prediction"),
                       {.ignore_case = request.value("ignore_case", false),
                        .ignore_punctuation = request.value("ignore_punctuation", false),
                        .ignore_numbers = request.value("ignore_numbers", false)});
  }
  if (op == "vqa_normalise") return vqa_normalise(text("text"));
  if (op == "vqa") return vqa_accuracy(texts("answers"), text("prediction"));
  if (op == "list") {
    const auto list = parse_python_list(text("text"));
    return list ? json(*list) : json({{"error", list.error().message}});
  }
  if (op == "multiple_choice") {
    const auto choice = parse_multiple_choice(text("response"), texts("options"));
    return choice ? json(*choice) : json(nullptr);
  }
  if (op == "open") {
    json result = json::array();
    const auto candidates = parse_open_response(text("response"));
    for (const auto& c : candidates) {
      if (const auto* part = std::get_if<std::string>(&c)) {
        result.push_back(*part);
      } else {
        result.push_back({{"float", float_repr(std::get<double>(c))}});
      }
    }
    return {{"candidates", result}, {"correct", open_answer_is_correct(texts("gold"), candidates)}};
  }
  if (op == "subject") {
    const auto subject = subject_of_id(text("id"));
    return subject ? json(*subject) : json(nullptr);
  }
  if (op == "statistics") {
    const auto values = numbers("values");
    return {{"mean", mean(values)},
            {"exact_mean", exact_mean(values)},
            {"stderr", optional_number(sample_stderr(values))},
            {"clt", optional_number(clt_stderr(values))},
            {"clustered", optional_number(clustered_stderr(values, texts("clusters")))}};
  }
  if (op == "bootstrap") {
    return optional_number(bootstrap_stderr(numbers("values"),
                                            request.at("draws").get<std::int64_t>(),
                                            request.at("seed").get<std::uint64_t>()));
  }
  return {{"unknown", op}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(json::parse(line)).dump(-1, ' ', false, json::error_handler_t::replace)
              << "\n";
  }
}
