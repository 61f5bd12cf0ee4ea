#include "evaluator/service/stop_strings.h"

#include <algorithm>
#include <utility>

namespace evalcar::service {
namespace {

/// Tokens without a text that may stand within a stop string, and one whose blank is stripped.
constexpr std::size_t kSilentTokens = 9;

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, "");
  for (const std::string& string : strings_) longest_ = std::max(longest_, string.size());
}

std::size_t StopStrings::first_in(const std::string& text) const {
  std::size_t first = std::string::npos;
  for (const std::string& string : strings_) first = std::min(first, text.find(string));
  return first;
}

void StopStrings::cut(std::string& text) const {
  if (const std::size_t at = first_in(text); at != std::string::npos) text.resize(at);
}

// Each token but silent ones adds a byte at least, and the last of a stop string is the last
// token's. Where what is looked at begins within a character, no more than that is read wrongly.
// SentencePiece's bytes by name are another matter: a row of them is a text only as a whole.
bool StopStrings::end(std::span<const std::int32_t> tokens,
                      const text::Tokenizer& tokenizer) const {
  if (strings_.empty()) return false;
  const std::size_t count = std::min(tokens.size(), longest_ + kSilentTokens);
  const auto last = tokens.subspan(tokenizer.begin_of_bytes(tokens, tokens.size() - count));
  return first_in(tokenizer.decode(last, /*skip_special=*/true)) != std::string::npos;
}

}  // namespace evalcar::service
