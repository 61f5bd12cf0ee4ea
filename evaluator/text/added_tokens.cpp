#include "evaluator/text/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/text/json_fields.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

constexpr std::size_t kMaxTokens = 100'000;
constexpr std::size_t kMaxContentBytes = 4096;
constexpr std::size_t kMaxAllContentBytes = std::size_t{4} << 20U;  // the tries take 64 times that

// The code point that ends at `end` (> 0).
char32_t last_code_point(std::string_view text, std::size_t end, std::size_t& begin) {
  begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return decode_utf8(text, begin).code_point;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t before = 0;
  return (begin > 0 && is_word(last_code_point(text, begin, before))) ||
         (end < text.size() && is_word(decode_utf8(text, end).code_point));
}

std::size_t blanks_before(std::string_view text, std::size_t end) {
  for (std::size_t begin = 0; end > 0 && is_space(last_code_point(text, end, begin)); end = begin) {
  }
  return end;
}

std::size_t blanks_behind(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Decoded next = decode_utf8(text, begin);
    if (!is_space(next.code_point)) break;
    begin += next.length_bytes;
  }
  return begin;
}

}  // namespace

std::optional<AddedToken> parse_added_token(const nlohmann::json& description) {
  auto content = string_field(description, "content");
  if (!content) return std::nullopt;
  AddedToken token;
  token.content = std::move(*content);
  token.special = bool_field(description, "special").value_or(false);
  // tokenizers' own default: what is not special is normalised.
  token.normalized = bool_field(description, "normalized").value_or(!token.special);
  token.lstrip = bool_field(description, "lstrip").value_or(false);
  token.rstrip = bool_field(description, "rstrip").value_or(false);
  token.single_word = bool_field(description, "single_word").value_or(false);
  return token;
}

void PatternTrie::insert(std::string_view pattern, std::int32_t value) {
  if (pattern.empty()) return;
  std::int32_t node = 0;
  first_[static_cast<unsigned char>(pattern[0])] = true;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[static_cast<std::size_t>(node)].children;
    const auto it = std::find_if(children.begin(), children.end(),
                                 [&](const auto& child) { return child.first == byte; });
    if (it != children.end()) {
      node = it->second;
    } else {
      const auto added = static_cast<std::int32_t>(nodes_.size());
      children.emplace_back(byte, added);
      nodes_.emplace_back();  // invalidates `children`
      node = added;
    }
  }
  auto& found = nodes_[static_cast<std::size_t>(node)].value;
  if (found < 0) found = value;
}

std::optional<std::pair<std::int32_t, std::size_t>> PatternTrie::longest_at(
    std::string_view text, std::size_t begin) const {
  std::optional<std::pair<std::int32_t, std::size_t>> best;
  const Node* node = nodes_.data();
  for (std::size_t i = begin; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto it = std::find_if(node->children.begin(), node->children.end(),
                                 [&](const auto& child) { return child.first == byte; });
    if (it == node->children.end()) break;
    node = &nodes_[static_cast<std::size_t>(it->second)];
    if (node->value >= 0) best.emplace(node->value, i + 1 - begin);
  }
  return best;
}

Status AddedTokens::check(const AddedToken& token) const {
  if (tokens_.size() < kMaxTokens && token.content.size() <= kMaxContentBytes &&
      content_bytes_ <= kMaxAllContentBytes)
    return {};
  return make_error(ErrorCode::kCorruption,
                    "added tokens: more than " + std::to_string(kMaxTokens) + ", one longer than " +
                        std::to_string(kMaxContentBytes) + " bytes, or all of more than " +
                        std::to_string(kMaxAllContentBytes));
}

Status AddedTokens::add(AddedToken token, const BpeModel& model, std::string normalized_content) {
  if (token.content.empty()) return {};
  if (const auto it = by_content_.find(token.content); it != by_content_.end()) {
    token.id = tokens_[it->second].id;
    token.special = token.special || tokens_[it->second].special;
    tokens_[it->second] = std::move(token);
    return {};
  }
  token.id = model.id_of(token.content).value_or(std::max(largest_id_ + 1, model.token_count()));
  largest_id_ = std::max(largest_id_, token.id);
  content_bytes_ += std::max(token.content.size(), normalized_content.size());
  by_content_.emplace(token.content, tokens_.size());
  by_id_.emplace(token.id, tokens_.size());
  tokens_.push_back(std::move(token));
  normalized_contents_.push_back(std::move(normalized_content));
  return {};
}

Status AddedTokens::finish() {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (!token.normalized) {
      raw_trie_.insert(token.content, static_cast<std::int32_t>(i));
      continue;
    }
    const std::string& content = normalized_contents_[i];
    const auto [other, is_new] = ids.emplace(content, token.id);
    if (content.empty() || (!is_new && other->second != token.id))
      return make_error(ErrorCode::kUnsupported,
                        "added token \"" + token.content +
                            "\" is looked for in normalized text as \"" + content +
                            "\", as another one is or as nothing would be");
    normalized_trie_.insert(content, static_cast<std::int32_t>(i));
  }
  return {};
}

std::vector<Section> AddedTokens::cut(std::string_view text, bool normalized,
                                      bool keep_special_text) const {
  const PatternTrie& trie = normalized ? normalized_trie_ : raw_trie_;
  std::vector<Section> sections;
  std::size_t covered = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = trie.starts(static_cast<unsigned char>(text[at])) ? trie.longest_at(text, at)
                                                                         : std::nullopt;
    if (!found) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found->first)];
    std::size_t begin = at, end = at + found->second;
    at = end;  // also if the token is dropped: matches do not overlap
    if (keep_special_text && token.special) continue;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(blanks_before(text, begin), covered);
    if (token.rstrip) end = blanks_behind(text, end);
    if (begin >= end) continue;  // blanks that the one before took along
    if (covered < begin) sections.push_back({-1, covered, begin});
    sections.push_back({token.id, begin, end});
    covered = end;
  }
  if (covered < text.size()) sections.push_back({-1, covered, text.size()});
  return sections;
}

std::optional<std::int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? std::nullopt : std::optional(tokens_[it->second].id);
}

const AddedToken* AddedTokens::by_id(std::int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

std::string_view AddedTokens::shown_content(const AddedToken& token) const {
  return token.normalized ? normalized_contents_[by_id_.at(token.id)] : token.content;
}

}  // namespace evalcar::text
