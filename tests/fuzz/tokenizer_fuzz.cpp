// A tokenizer.json, and a text for it (the bytes after the first newline).
#include <string>

#include "evaluator/text/tokenizer.h"
#include "evaluator/text/tokenizer_config.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const auto input = fuzz::as_text(data, size);
  const auto cut = input.find('\n');
  const auto json = std::string(input.substr(0, cut));
  const auto tokenizer = text::Tokenizer::parse(json, {});
  if (tokenizer.has_value() && cut != std::string_view::npos) {
    const auto ids = tokenizer.value().encode(input.substr(cut + 1));
    if (ids.has_value()) (void)tokenizer.value().decode(ids.value(), false);
  }
  return 0;
}
