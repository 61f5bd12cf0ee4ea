// Tokens that stand outside the model ("added_tokens"): they are cut out of the text before it is
// normalised (or after, where `normalized` says so), the longest at the leftmost place first.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evaluator/text/bpe.h"
#include "store/base/result.h"

namespace evalcar::text {

struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool special = false;
  bool normalized = false;   ///< looked for in the normalised text
  bool lstrip = false;       ///< takes the blanks before it along
  bool rstrip = false;       ///< takes the blanks behind it along
  bool single_word = false;  ///< only where no word character touches it
};

/// From an object as in tokenizer.json's "added_tokens" or tokenizer_config.json's
/// "added_tokens_decoder" (without the id). Nothing if it is not one.
std::optional<AddedToken> parse_added_token(const nlohmann::json& description);

/// A stretch of text: an added token (its id), or text between them (id −1).
struct Section {
  std::int32_t id = -1;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Finds the longest of many patterns at a place. Thread-safe once filled.
class PatternTrie {
 public:
  PatternTrie() : nodes_(1) {}
  void insert(std::string_view pattern, std::int32_t value);
  /// The value and the length of the longest pattern at `begin`, or nothing.
  std::optional<std::pair<std::int32_t, std::size_t>> longest_at(std::string_view text,
                                                                 std::size_t begin) const;
  bool starts(unsigned char byte) const { return first_[byte]; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> children;
    std::int32_t value = -1;
  };
  std::vector<Node> nodes_;
  std::array<bool, 256> first_{};
};

/// Not thread-safe while tokens are added, thread-safe after.
class AddedTokens {
 public:
  /// kCorruption where there are too many of them already, or the content is too long.
  Status check(const AddedToken& token) const;
  /// Adds a token (check() was good), or changes the flags of one that is there. Its id is the
  /// model's, if the model has it, else the next free one, as in tokenizers. `normalized_content`:
  /// the content as the normaliser gives it.
  Status add(AddedToken token, const BpeModel& model, std::string normalized_content);
  /// Builds the tries; to be called after the last add(). kUnsupported where two tokens are looked
  /// for by one normalised content, or one by none: tokenizers' choice is not defined.
  Status finish();

  /// Cuts the text at the tokens that are looked for before (or after) normalising.
  std::vector<Section> cut(std::string_view text, bool normalized, bool keep_special_text) const;
  std::optional<std::int32_t> id_of(std::string_view content) const;
  const AddedToken* by_id(std::int32_t id) const;
  /// What the token is in decoded text: its content, normalised if it is looked for so.
  std::string_view shown_content(const AddedToken& token) const;
  std::int32_t largest_id() const { return largest_id_; }

 private:
  std::vector<AddedToken> tokens_;
  std::vector<std::string> normalized_contents_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  std::int32_t largest_id_ = -1;
  std::size_t content_bytes_ = 0;
  PatternTrie raw_trie_, normalized_trie_;
};

}  // namespace evalcar::text
