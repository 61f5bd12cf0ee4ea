// When a number is no number to rely on: a model that answers everything alike, runs on until it is
// cut off, or says what nobody can read, still gets a score. Such a score is published, and
// flagged.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace evalcar::tasks {

struct Response;

/// What is known of a task's answers beside their texts.
struct AnswerFacts {
  std::int64_t cut_off = 0;         ///< reached max_new_tokens without an end
  std::int64_t max_new_tokens = 0;  ///< of the task's settings; 0: not known
  std::int64_t unreadable = 0;      ///< in which the scorer found no answer
};

/// Of fewer answers that they are all alike says nothing about the model.
inline constexpr std::size_t kFewestAlike = 5;
/// Of fewer answers the shares below say nothing about the model.
inline constexpr std::size_t kFewestForDoubt = 20;
/// More than that share of answers that were cut off, or that cannot be read, is flagged.
inline constexpr double kMostDoubtful = 0.2;

/// Sentences, each a reason to look before believing the number; empty: none.
std::vector<std::string> doubts_about(std::span<const Response> answers, const AnswerFacts& facts);

}  // namespace evalcar::tasks
