// The byte-pair model of a tokenizer.json ("model": {"type": "BPE", …}).
//
// A piece begins as its bytes; the pair with the lowest rank is merged, the leftmost first, until
// no pair has a rank. A heap of pairs over a linked list makes that O(n log n).
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

/// Immutable after parse; thread-safe.
class BpeModel {
 public:
  /// kCorruption for a merge whose parts or result are not in the vocabulary; kUnsupported for
  /// options that byte-level vocabularies do not use (dropout, affixes, byte_fallback).
  static Result<BpeModel> parse(const nlohmann::json& model);

  /// Appends the ids of one piece (raw bytes). Bytes that the vocabulary lacks become unk_token, or
  /// vanish if there is none, as in tokenizers.
  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// Empty if no token has the id.
  std::string_view token_of(std::int32_t id) const;
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
  std::vector<Symbol> first_symbols(std::string_view piece) const;
  void merge_all(std::vector<Symbol>& symbols) const;

  std::vector<std::string> tokens_;  // by id
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the pair of ids
  std::vector<std::int32_t> byte_ids_;               // 256 of them; -1: not in the vocabulary
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace evalcar::text
