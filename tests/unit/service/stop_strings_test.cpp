#include "evaluator/service/stop_strings.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/text/tokenizer_config.h"

using evalcar::service::StopStrings;
using evalcar::text::Tokenizer;

namespace {

enum Token : std::int32_t { kA, kB, kLine, kFirstOfE, kSecondOfE, kLineAndA, kSilent };

Tokenizer tokenizer() {
  return Tokenizer::parse(
             R"({"added_tokens":[{"id":6,"content":"<mark>","special":true}],"normalizer":null,)"
             R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
             R"("decoder":{"type":"ByteLevel"},"post_processor":null,"model":{"type":"BPE",)"
             R"("vocab":{"a":0,"b":1,"Ċ":2,"Ã":3,"©":4,"Ċa":5},"merges":["Ċ a"]}})",
             {})
      .value();
}

/// After how many tokens an answer of these ends; -1: it does not.
int ends_after(const StopStrings& stop, const std::vector<std::int32_t>& tokens,
               const Tokenizer& words = tokenizer()) {
  for (std::size_t count = 1; count <= tokens.size(); ++count) {
    if (stop.end(std::span(tokens).first(count), words)) return static_cast<int>(count);
  }
  return -1;
}

std::string cut(const StopStrings& stop, std::string text) {
  stop.cut(text);
  return text;
}

}  // namespace

TEST_CASE("a text is cut where the first of its stop strings begins") {
  const StopStrings stop({"", "\n\n", "b"});

  CHECK(cut(stop, "a\n\nab") == "a");
  CHECK(cut(stop, "aba\n\n") == "a");
  CHECK(cut(stop, "a\na") == "a\na");
  CHECK(cut(stop, "\n\n") == "");
  CHECK(cut(StopStrings({""}), "ab") == "ab");
}

TEST_CASE("an answer ends with the token that completes a stop string") {
  const StopStrings stop({"a\n\n", "bb"});

  CHECK(ends_after(stop, {kA, kLine, kLine, kA}) == 3);
  CHECK(ends_after(stop, {kA, kLine, kLineAndA, kA}) == 3);  // which has more than its end
  CHECK(ends_after(stop, {kLine, kLine, kB, kA, kB}) == -1);
  CHECK(ends_after(stop, {kA, kB, kB}) == 3);
  CHECK(ends_after(stop, {kA, kB, kSilent, kSilent, kB}) == 5);
  CHECK(ends_after(StopStrings(), {kA, kA}) == -1);
  CHECK(ends_after(StopStrings({""}), {kA, kA}) == -1);
}

TEST_CASE("an answer of any length ends there, also behind a character of several tokens") {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 50; ++i) tokens.insert(tokens.end(), {kFirstOfE, kSecondOfE, kA});
  CHECK(ends_after(StopStrings({"éb"}), tokens) == -1);
  tokens.insert(tokens.end(), {kFirstOfE, kSecondOfE, kB, kA});
  CHECK(ends_after(StopStrings({"éb"}), tokens) == static_cast<int>(tokens.size()) - 1);
  CHECK(ends_after(StopStrings({"é"}), tokens) == 2);
}

TEST_CASE("bytes by name are read as a whole, however many they are") {
  enum Byte : std::int32_t { kLetter, kFirst, kSecond, kThird, kNewline, kMark };
  const Tokenizer words =
      Tokenizer::parse(
          R"({"added_tokens":[{"content":"<mark>","special":true}],"normalizer":null,)"
          R"("pre_tokenizer":null,"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},)"
          R"({"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":)"
          R"({"type":"BPE","byte_fallback":true,"vocab":{"a":0,"<0xE9>":1,"<0x91>":2,"<0xAB>":3,)"
          R"("<0x0A>":4},"merges":[]}})",
          {})
          .value();
  std::vector<std::int32_t> tokens = {kLetter};
  for (int i = 0; i < 20; ++i) tokens.insert(tokens.end(), {kFirst, kSecond, kThird});
  const StopStrings stop({"\n"});
  CHECK(ends_after(stop, tokens, words) == -1);
  tokens.insert(tokens.end(), {kNewline, kFirst, kSecond});
  CHECK(ends_after(stop, tokens, words) == 62);

  // A row that is no text has no newline in it, for whoever reads all of it.
  tokens = {kLetter, kSecond, kNewline};
  tokens.insert(tokens.end(), 30, kLetter);
  CHECK(ends_after(stop, tokens, words) == -1);
  tokens = {kSecond};
  tokens.insert(tokens.end(), 20, kMark);  // which leave no trace between the bytes
  tokens.insert(tokens.end(), {kNewline, kLetter});
  CHECK(ends_after(stop, tokens, words) == -1);
}
