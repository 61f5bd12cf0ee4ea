// What earlier checkpoints answered, kept from evaluation to evaluation: a trained model's answers
// change little from one to the next, so they are drafts, and tell how long an answer will be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evaluator/engine/engine.h"
#include "store/base/hash.h"

namespace evalcar::service {

/// What is asked, as one number: a document's prompt with its pictures, and what is generated with.
/// `series`: protocol::Evaluate::series. Two questions that happen to get the same number cost each
/// other a useless draft.
std::uint64_t question_of(std::string_view series, std::string_view task, std::int64_t doc_id,
                          const engine::Request& request, std::span<const Sha256Digest> pictures);

/// The last answer to each question. Within a limit of memory: beyond it those go that were asked
/// for least recently. Not thread-safe.
class PreviousAnswers {
 public:
  explicit PreviousAnswers(std::size_t most_bytes = std::size_t{64} << 20U)
      : most_bytes_(most_bytes) {}

  /// Null where there is none. Valid until the next keep().
  const std::vector<std::int32_t>* find(std::uint64_t question);
  void keep(std::uint64_t question, std::vector<std::int32_t> tokens);

  /// Of all that is kept, about.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Kept {
    std::uint64_t question = 0;
    std::vector<std::int32_t> tokens;
  };
  using Order = std::list<Kept>;  // the one asked for last in front

  static std::size_t bytes_of(const Kept& kept);
  void drop(Order::iterator which);

  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  Order order_;
  std::unordered_map<std::uint64_t, Order::iterator> by_question_;
};

}  // namespace evalcar::service
