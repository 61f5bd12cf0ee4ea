// Byte-pair encoding from a checkpoint's tokenizer.json, over bytes or (SentencePiece's)
// characters, equal to Hugging Face's `tokenizers` id for id.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::text {

struct TokenizerConfig;

/// Immutable after load; thread-safe.
class Tokenizer {
 public:
  /// Reads tokenizer.json (and tokenizer_config.json for eos/pad and added tokens). kNotFound
  /// naming the file and what makes one if there is none; kUnsupported naming the component (model,
  /// normaliser, pre-tokenizer, post-processor, decoder) that is not known.
  static Result<Tokenizer> load(const FileSystem& files, const std::string& dir);
  /// The same from the text of a tokenizer.json and what tokenizer_config.json says (may be empty).
  static Result<Tokenizer> parse(const std::string& tokenizer_json, const TokenizerConfig& config);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of the text; special tokens in it are recognised. Those of the post-processor (Llama 3's
  /// BOS) are put around it, as with add_special_tokens=True, which is what a transformers
  /// processor does with the text of a chat template; without them where `add_special_tokens` is
  /// false. Invalid UTF-8 is replaced by U+FFFD.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           bool add_special_tokens = true) const;
  /// Text of the ids, as batch_decode(skip_special_tokens=skip_special,
  /// clean_up_tokenization_spaces=False).
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;
  /// Where a part of `ids` has to begin so that decode(…, skip_special = true) reads in it from
  /// `at` on what it reads in all of them, but for a blank at the part's begin: `at`, or before it
  /// where it lies among bytes by name, which are one text.
  std::size_t begin_of_bytes(std::span<const std::int32_t> ids, std::size_t at) const;
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::int32_t id) const;
  std::optional<std::int32_t> eos_id() const;  ///< tokenizer_config.json's eos_token
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> pad_id() const;
  std::int32_t size() const;  ///< ids are 0 … size()-1

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace evalcar::text
