// The byte-pair model of a tokenizer.json ("model": {"type": "BPE", …}).
//
// A piece begins as its bytes or characters; the pair with the lowest rank is merged, the leftmost
// first, until no pair has a rank. A heap of pairs over a linked list makes that O(n log n).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/base/result.h"

namespace evalcar::text {

/// How a vocabulary spells its tokens.
enum class Spelling {
  kByteLetters,  ///< each byte as one of GPT-2's letters
  kCharacters,   ///< as they are; bytes of others as "<0x0A>" (SentencePiece's byte_fallback)
};

/// Immutable after parse; thread-safe.
class BpeModel {
 public:
  /// kCorruption for a merge whose parts or result are not in the vocabulary; kUnsupported for
  /// options that such vocabularies do not use (dropout, affixes, byte_fallback of letters).
  static Result<BpeModel> parse(const nlohmann::json& model, Spelling spelling);

  /// Appends the ids of one piece (valid UTF-8). What the vocabulary lacks becomes its bytes where
  /// byte_fallback says so and the vocabulary has them, else unk_token, or vanishes if there is
  /// none, as in tokenizers.
  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// Nothing if no token has the id.
  std::optional<std::string_view> token_of(std::int32_t id) const;
  /// How many tokens there are: tokens that are added get ids from here on.
  std::int32_t token_count() const { return static_cast<std::int32_t>(ids_.size()); }
  std::int32_t largest_id() const { return static_cast<std::int32_t>(tokens_.size()) - 1; }

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t id;
  };
  struct Symbol;
  Status read_vocabulary(const nlohmann::json& vocabulary);
  Status read_merges(const nlohmann::json& merges);
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  std::int32_t id_of_unit(std::string_view unit) const;
  bool has_bytes(std::string_view unit) const;
  std::string spelled(std::string_view piece) const;
  std::vector<Symbol> first_symbols(std::string_view piece) const;
  void merge_all(std::vector<Symbol>& symbols) const;

  std::vector<std::optional<std::string>> tokens_;  // by id
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the pair of ids
  Spelling spelling_ = Spelling::kByteLetters;
  std::vector<std::int32_t> byte_ids_;  // 256 of them; -1: not in the vocabulary
  bool byte_fallback_ = false;
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace evalcar::text
