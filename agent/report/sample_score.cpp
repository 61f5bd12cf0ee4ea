#include "agent/report/sample_score.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "evaluator/metrics/mmmu.h"

namespace evalcar::report {
namespace {

using Json = nlohmann::json;

std::vector<std::string> texts_of(const Json& value) {
  std::vector<std::string> texts;
  if (value.is_string()) texts.push_back(value.get<std::string>());
  if (!value.is_array()) return texts;
  for (const Json& item : value) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

/// {"question_type", "answer", "parsed_pred": [letter, or the candidates of an open answer]}.
std::optional<double> mmmu_score(const Json& entry) {
  const auto parsed = entry.find("parsed_pred");
  const auto gold = entry.find("answer");
  if (gold == entry.end() || parsed == entry.end() || !parsed->is_array() || parsed->empty()) {
    return std::nullopt;
  }
  const std::vector<std::string> references = texts_of(*gold);
  const Json& answer = parsed->front();
  if (answer.is_string()) {  // a letter; "" where strict counts a miss
    const auto letter = answer.get<std::string>();
    for (const std::string& reference : references) {
      if (!letter.empty() && reference == letter) return 1.0;
    }
    return 0.0;
  }
  if (!answer.is_array()) return std::nullopt;
  std::vector<metrics::OpenCandidate> candidates;
  for (const Json& item : answer) {
    if (item.is_string()) candidates.emplace_back(item.get<std::string>());
    if (item.is_number()) candidates.emplace_back(item.get<double>());
  }
  return metrics::open_answer_is_correct(references, candidates) ? 1.0 : 0.0;
}

}  // namespace

std::optional<double> sample_score(const Json& line, const std::string& metric) {
  if (!line.is_object()) return std::nullopt;
  const auto found = line.find(metric);
  if (found == line.end()) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>() ? 1.0 : 0.0;
  if (found->is_object()) {
    if (found->contains("parsed_pred")) return mmmu_score(*found);
    return sample_score(*found, "score");
  }
  if (!found->is_number() || !std::isfinite(found->get<double>())) return std::nullopt;
  return found->get<double>();
}

bool counts_as_right(double score, bool higher_is_better) {
  return higher_is_better ? score >= 0.5 : score <= 0.5;
}

std::string answer_text(const Json& value, std::size_t most_bytes) {
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_array()) {
    for (const Json& item : value) {
      if (text.size() > most_bytes) break;
      text += (text.empty() ? "" : " | ") + answer_text(item, most_bytes);
    }
  } else if (!value.is_null()) {
    text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (text.size() <= most_bytes) return text;
  std::size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "…";
}

}  // namespace evalcar::report
