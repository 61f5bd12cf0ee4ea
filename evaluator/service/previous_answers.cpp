#include "evaluator/service/previous_answers.h"

#include <iterator>
#include <span>
#include <string>
#include <utility>

namespace evalcar::service {

std::uint64_t question_of(std::string_view series, std::string_view task, std::int64_t doc_id,
                          const engine::Request& request, std::span<const Sha256Digest> pictures) {
  std::string text;
  const auto add = [&text](std::string_view part) {  // with its length: no two lists are one text
    text += std::to_string(part.size()) + ":";
    text += part;
  };
  const auto add_all = [&]<typename T>(std::span<const T> values) {
    add({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  };
  const engine::GenerationSettings& with = request.generation;
  add(series);
  add(task);
  add(std::to_string(doc_id));
  add_all(std::span(request.tokens));
  add_all(pictures);
  for (const double number : {with.temperature, with.top_p, with.repetition_penalty})
    add(std::to_string(number));
  add(std::to_string(with.max_new_tokens) + " " + std::to_string(with.top_k) + " " +
      std::to_string(with.seed));
  add_all(std::span(with.stop_ids));
  return xxh3_64(std::as_bytes(std::span(text)));
}

const std::vector<std::int32_t>* PreviousAnswers::find(std::uint64_t question) {
  const auto found = by_question_.find(question);
  if (found == by_question_.end()) return nullptr;
  order_.splice(order_.begin(), order_, found->second);
  return &found->second->tokens;
}

void PreviousAnswers::keep(std::uint64_t question, std::vector<std::int32_t> tokens) {
  if (const auto before = by_question_.find(question); before != by_question_.end())
    drop(before->second);
  tokens.shrink_to_fit();
  order_.push_front({question, std::move(tokens)});
  by_question_[question] = order_.begin();
  bytes_ += bytes_of(order_.front());
  while (bytes_ > most_bytes_) drop(std::prev(order_.end()));
}

// The list's and the map's own memory is about as much as this says.
std::size_t PreviousAnswers::bytes_of(const Kept& kept) {
  constexpr std::size_t kOfEntry = 128;
  return kOfEntry + kept.tokens.size() * sizeof(std::int32_t);
}

void PreviousAnswers::drop(Order::iterator which) {
  bytes_ -= bytes_of(*which);
  by_question_.erase(which->question);
  order_.erase(which);
}

}  // namespace evalcar::service
