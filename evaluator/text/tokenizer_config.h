// What tokenizer_config.json (and, in older folders, special_tokens_map.json) says beside
// tokenizer.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evaluator/text/added_tokens.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::text {

struct TokenizerConfig {
  /// "eos_token", "pad_token", "bos_token", … with their content; those that are null are absent.
  std::map<std::string, std::string> named_tokens;
  std::vector<AddedToken> added_tokens;        ///< of "added_tokens_decoder", by id
  std::vector<std::string> additional_tokens;  ///< further special ones
  bool split_special_tokens = false;           ///< special tokens in the text are ordinary text
  /// "chat_template": a string, or the one named "default" of a list of {name, template}.
  std::optional<std::string> chat_template;
};

/// Reads the folder's files; all of them may be absent. kCorruption for a file that is no JSON
/// object.
Result<TokenizerConfig> load_tokenizer_config(const FileSystem& files, const std::string& dir);

/// read_file, with nothing for a file that is not there.
Result<std::optional<std::string>> read_optional(const FileSystem& files, const std::string& path,
                                                 std::uint64_t limit_bytes);

/// The template in a "chat_template" field: a string, or a list of {"name", "template"}, of which
/// "default" is taken. Nothing if it is neither.
std::optional<std::string> template_of_field(const nlohmann::json& object);

}  // namespace evalcar::text
