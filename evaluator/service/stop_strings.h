// Texts that end an answer: a task's `until`, which lmms-eval's chat wrappers ignore, so that it
// counts with compat = "strict" alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evaluator/text/tokenizer.h"

namespace evalcar::service {

/// Immutable; thread-safe.
class StopStrings {
 public:
  StopStrings() = default;
  /// Empty ones end nothing.
  explicit StopStrings(std::vector<std::string> strings);

  /// Cuts a text before the first place where one of them begins.
  void cut(std::string& text) const;
  /// Whether the text of an answer that grows token by token has come to have one of them in it.
  /// Only its end is looked at: to be asked after each token. It may miss one that is written with
  /// many tokens that have no text (special ones); cut() finds that.
  bool end(std::span<const std::int32_t> tokens, const text::Tokenizer& tokenizer) const;

 private:
  std::size_t first_in(const std::string& text) const;

  std::vector<std::string> strings_;
  std::size_t longest_ = 0;  ///< bytes
};

}  // namespace evalcar::service
