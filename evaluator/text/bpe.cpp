#include "evaluator/text/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <utility>

#include "evaluator/text/byte_letters.h"
#include "evaluator/text/json_fields.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

constexpr std::int64_t kMaxId = 4'000'000;  // the largest vocabularies have 260,000
constexpr std::size_t kMaxTokenBytes = std::size_t{64} << 10U;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
         static_cast<std::uint32_t>(right);
}

bool absent_or(const nlohmann::json& object, const char* name, const nlohmann::json& value) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() || *it == value;
}

Status check_options(const nlohmann::json& model, Spelling spelling) {
  const auto refuse = [](const char* what) {
    return make_error(ErrorCode::kUnsupported,
                      std::string("model: BPE with ") + what + " is not supported");
  };
  if (!absent_or(model, "dropout", 0.0)) return refuse("dropout");
  if (!absent_or(model, "continuing_subword_prefix", ""))
    return refuse("continuing_subword_prefix");
  if (!absent_or(model, "end_of_word_suffix", "")) return refuse("end_of_word_suffix");
  if (spelling == Spelling::kByteLetters && !absent_or(model, "byte_fallback", false))
    return refuse("byte_fallback beside ByteLevel");
  return {};
}

Error bad_merge(std::size_t rank, const std::string& why) {
  return make_error(ErrorCode::kCorruption, "model.merges[" + std::to_string(rank) + "]: " + why);
}

// Both spellings: "a b" and ["a", "b"].
Result<std::pair<std::string, std::string>> merge_parts(const nlohmann::json& merge,
                                                        std::size_t rank) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  if (!merge.is_string()) return bad_merge(rank, "neither \"a b\" nor [\"a\", \"b\"]");
  const auto text = merge.get<std::string>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    return bad_merge(rank, "\"" + text + "\" is not two tokens with one space between them");
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

/// As byte_fallback looks for it: "<0x0A>".
std::string byte_token(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4U], kDigits[byte & 15U], '>'};
}

}  // namespace

// A node of the linked list over a piece; id −1 once it has been merged into its left neighbour.
struct BpeModel::Symbol {
  std::int32_t id = -1;
  std::int32_t previous = -1;
  std::int32_t next = -1;
};

Result<BpeModel> BpeModel::parse(const nlohmann::json& model, Spelling spelling) {
  if (!model.is_object()) return make_error(ErrorCode::kCorruption, "no \"model\" object");
  const std::string type = string_field(model, "type").value_or("BPE");
  if (type != "BPE")
    return make_error(ErrorCode::kUnsupported,
                      "model type \"" + type + "\" is not supported (BPE is)");
  EVALCAR_RETURN_IF_ERROR(check_options(model, spelling));
  const auto vocabulary = model.find("vocab"), merges = model.find("merges");
  if (vocabulary == model.end() || !vocabulary->is_object())
    return make_error(ErrorCode::kCorruption, "model.vocab is not an object");
  if (merges == model.end() || !merges->is_array())
    return make_error(ErrorCode::kCorruption, "model.merges is not a list");

  BpeModel result;
  result.spelling_ = spelling;
  EVALCAR_ASSIGN_OR_RETURN(result.byte_fallback_, checked_bool(model, "byte_fallback", false));
  EVALCAR_ASSIGN_OR_RETURN(result.fuse_unknown_, checked_bool(model, "fuse_unk", false));
  EVALCAR_ASSIGN_OR_RETURN(result.ignore_merges_, checked_bool(model, "ignore_merges", false));
  EVALCAR_RETURN_IF_ERROR(result.read_vocabulary(*vocabulary));
  EVALCAR_RETURN_IF_ERROR(result.read_merges(*merges));
  if (const auto unknown = string_field(model, "unk_token")) {
    result.unknown_ = result.id_of(*unknown);
    const auto& bytes = result.byte_ids_;
    const bool has_all = (spelling == Spelling::kByteLetters || result.byte_fallback_) &&
                         std::find(bytes.begin(), bytes.end(), -1) == bytes.end();
    if (!result.unknown_ && !has_all)
      return make_error(ErrorCode::kCorruption,
                        "model.unk_token is not in the vocabulary: " + *unknown);
  }
  return result;
}

Status BpeModel::read_vocabulary(const nlohmann::json& vocabulary) {
  std::int64_t largest = -1;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > kMaxId)
      return make_error(ErrorCode::kCorruption,
                        "model.vocab: the id of \"" + token + "\" is " +
                            (id.is_number() ? id.dump() : std::string("a ") + id.type_name()) +
                            "; expected 0 … " + std::to_string(kMaxId));
    if (token.size() > kMaxTokenBytes)
      return make_error(ErrorCode::kCorruption,
                        "model.vocab: a token of " + std::to_string(token.size()) + " bytes");
    largest = std::max(largest, id.get<std::int64_t>());
  }
  tokens_.resize(static_cast<std::size_t>(largest + 1));
  ids_.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    const auto number = id.get<std::int32_t>();
    tokens_[static_cast<std::size_t>(number)] = token;
    ids_.emplace(token, number);
  }
  byte_ids_.resize(256);
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<unsigned char>(byte);
    byte_ids_[value] = id_of(spelling_ == Spelling::kByteLetters
                                 ? bytes_to_letters(std::string(1, static_cast<char>(value)))
                                 : byte_token(value))
                           .value_or(-1);
  }
  return {};
}

Status BpeModel::read_merges(const nlohmann::json& merges) {
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    EVALCAR_ASSIGN_OR_RETURN(const auto parts, merge_parts(merges[rank], rank));
    const auto left = id_of(parts.first), right = id_of(parts.second);
    if (!left || !right)
      return bad_merge(rank,
                       "\"" + (left ? parts.second : parts.first) + "\" is not in the vocabulary");
    const auto merged = id_of(parts.first + parts.second);
    if (!merged)
      return bad_merge(rank, "\"" + parts.first + parts.second + "\" is not in the vocabulary");
    merges_[pair_key(*left, *right)] = {static_cast<std::int32_t>(rank), *merged};
  }
  return {};
}

std::optional<std::int32_t> BpeModel::id_of(std::string_view token) const {
  const auto it = ids_.find(std::string(token));
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<std::string_view> BpeModel::token_of(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) return std::nullopt;
  return tokens_[static_cast<std::size_t>(id)];
}

const BpeModel::Merge* BpeModel::merge_of(std::int32_t left, std::int32_t right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

std::int32_t BpeModel::id_of_unit(std::string_view unit) const {
  if (spelling_ == Spelling::kByteLetters) return byte_ids_[static_cast<unsigned char>(unit[0])];
  return id_of(unit).value_or(-1);
}

bool BpeModel::has_bytes(std::string_view unit) const {
  return std::ranges::all_of(
      unit, [&](const char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; });
}

std::vector<BpeModel::Symbol> BpeModel::first_symbols(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  const auto push = [&](std::int32_t id) {
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  };
  // As in tokenizers, what is unknown comes behind the bytes that follow it.
  bool is_unknown_due = false;
  const auto settle_unknown = [&] {
    if (std::exchange(is_unknown_due, false)) push(*unknown_);
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length =
        spelling_ == Spelling::kByteLetters ? 1 : decode_utf8(piece, at).length_bytes;
    const std::string_view unit = piece.substr(at, length);
    at += length;
    if (const std::int32_t id = id_of_unit(unit); id >= 0) {
      settle_unknown();
      push(id);
    } else if (byte_fallback_ && has_bytes(unit)) {
      for (const char c : unit) push(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (unknown_) {
      if (!fuse_unknown_) settle_unknown();
      is_unknown_due = true;
    }
  }
  settle_unknown();
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void BpeModel::merge_all(std::vector<Symbol>& symbols) const {
  struct Candidate {
    std::int32_t rank;
    std::int32_t left;  // index of the left symbol
    std::int32_t id;    // what the pair becomes
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    if (const Merge* merge = merge_of(at(left).id, at(at(left).next).id))
      heap.push({merge->rank, left, merge->id});
  };
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i) offer(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = at(best.left);
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = at(left.next);
    const Merge* merge = merge_of(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;  // one of the two has changed since
    left.id = best.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = best.left;
    offer(left.previous);
    offer(best.left);
  }
}

std::string BpeModel::spelled(std::string_view piece) const {
  return spelling_ == Spelling::kByteLetters ? bytes_to_letters(piece) : std::string(piece);
}

void BpeModel::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (ignore_merges_) {
    if (const auto whole = id_of(spelled(piece))) {
      out.push_back(*whole);
      return;
    }
  }
  std::vector<Symbol> symbols = first_symbols(piece);
  if (symbols.size() > 1) merge_all(symbols);
  for (const Symbol& symbol : symbols)
    if (symbol.id >= 0) out.push_back(symbol.id);
}

}  // namespace evalcar::text
