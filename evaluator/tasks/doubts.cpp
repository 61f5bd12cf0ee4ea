#include "evaluator/tasks/doubts.h"

#include <algorithm>

#include "evaluator/tasks/task.h"
#include "store/base/text.h"

namespace evalcar::tasks {
namespace {

constexpr std::size_t kMostShown = 60;

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

/// At most so many bytes, and no half of a character at the end.
std::string shortened(std::string text) {
  if (text.size() <= kMostShown) return text;
  std::size_t end = kMostShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end) + "…";
}

std::string of(std::int64_t count, std::size_t all) {
  return std::to_string(count) + " of " + std::to_string(all) + " answers ";
}

}  // namespace

std::vector<std::string> doubts_about(std::span<const Response> answers, const AnswerFacts& facts) {
  std::vector<std::string> doubts;
  if (answers.size() < kFewestAlike) return doubts;
  const auto too_many = [&](std::int64_t count) {
    return answers.size() >= kFewestForDoubt &&
           static_cast<double>(count) > kMostDoubtful * static_cast<double>(answers.size());
  };
  const std::string& first = answers.front().text;
  const bool alike =
      std::ranges::all_of(answers, [&](const Response& answer) { return answer.text == first; });
  const auto blank =
      std::ranges::count_if(answers, [](const Response& answer) { return is_blank(answer.text); });
  if (alike) {
    doubts.push_back("all " + std::to_string(answers.size()) + " answers are the same: \"" +
                     printable(shortened(first)) + "\"");
  } else if (too_many(blank)) {
    doubts.push_back(of(blank, answers.size()) + "are empty");
  }
  if (facts.max_new_tokens > 0 && too_many(facts.cut_off)) {
    doubts.push_back(of(facts.cut_off, answers.size()) +
                     "were cut off at max_new_tokens = " + std::to_string(facts.max_new_tokens));
  }
  if (too_many(facts.unreadable)) {
    doubts.push_back(of(facts.unreadable, answers.size()) + "name none of the options");
  }
  return doubts;
}

}  // namespace evalcar::tasks
