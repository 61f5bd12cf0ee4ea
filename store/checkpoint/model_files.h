// The files beside a model's weights, and which of them belong together.
//
// A checkpoint may lack some, which then come from another model's folder. Those of one group come
// from one folder: transformers looks for some of them (a chat template, a processor's settings)
// under several names in turn, so that one more file of another model would hide the checkpoint's.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "store/checkpoint/folder.h"

namespace evalcar::checkpoint {

enum class FileGroup {
  kConfig,     ///< config.json, generation_config.json
  kTokenizer,  ///< vocabulary, its settings, the chat templates
  kProcessor,  ///< of pictures, videos and sound
  kCode,       ///< a model's own Python files; each stands for itself
};

/// Absent: none of a model's files.
std::optional<FileGroup> file_group(std::string_view name);

/// The files of which one is needed to load anything of the group; none of kCode.
std::span<const std::string_view> files_that_carry(FileGroup group);

/// The one of the tokenizer's that the evaluator reads.
inline constexpr std::string_view kFastTokenizer = "tokenizer.json";

/// Whether the folder has something of the group that can be loaded.
bool carries(const Folder& folder, FileGroup group);

/// A tokenizer's further chat templates lie in a folder of this name.
inline constexpr std::string_view kTemplatesFolder = "additional_chat_templates";

/// Whether a processor may keep one of its further tokenizers in a folder of this name, which is
/// that of its part in it: "qformer_tokenizer", "decoder_tokenizer".
bool is_tokenizer_folder(std::string_view name);

}  // namespace evalcar::checkpoint
