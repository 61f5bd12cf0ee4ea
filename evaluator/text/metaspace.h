// SentencePiece's visible space (U+2581), as tokenizer.json's pre-tokenizer and decoder "Metaspace"
// describe it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "store/base/result.h"

namespace evalcar::text {

struct Metaspace {
  enum class Prepend {
    kFirst,  ///< before what begins the whole text
    kNever,
    kAlways,  ///< before every piece
  };
  std::string replacement;  ///< one character, which stands for a space
  Prepend prepend = Prepend::kAlways;
  bool splits = true;  ///< a piece ends before each one of them
};

/// kCorruption where a field has a value that tokenizers refuses.
Result<Metaspace> parse_metaspace(const nlohmann::json& description);

}  // namespace evalcar::text
