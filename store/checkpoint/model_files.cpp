#include "store/checkpoint/model_files.h"

#include <algorithm>
#include <array>

namespace evalcar::checkpoint {
namespace {

// What `save_pretrained` of models, tokenizers and processors writes, transformers 4.x and 5.x.
constexpr std::array<std::string_view, 1> kConfigs = {"config.json"};
constexpr std::array<std::string_view, 18> kVocabularies = {kFastTokenizer,
                                                            "bpe.codes",
                                                            "bpe.model",
                                                            "byte_maps.json",
                                                            "prophetnet.tokenizer",
                                                            "sentencepiece.bpe.model",
                                                            "sentencepiece.model",
                                                            "source.spm",
                                                            "spiece.model",
                                                            "spm.model",
                                                            "spm_char.model",
                                                            "target.spm",
                                                            "tekken.json",
                                                            "tokenizer.model",
                                                            "vocab-src.json",
                                                            "vocab-tgt.json",
                                                            "vocab.json",
                                                            "vocab.txt"};
constexpr std::array<std::string_view, 12> kBesideVocabularies = {"added_tokens.json",
                                                                  "chat_template.json",
                                                                  "dict.txt",
                                                                  "emoji.json",
                                                                  "entity_vocab.json",
                                                                  "merges.txt",
                                                                  "normalizer.json",
                                                                  "special_tokens_map.json",
                                                                  "target_vocab.json",
                                                                  "tokenizer_config.json",
                                                                  "word_pronunciation.json",
                                                                  "word_shape.json"};
constexpr std::array<std::string_view, 2> kProcessors = {"preprocessor_config.json",
                                                         "processor_config.json"};
constexpr std::array<std::string_view, 3> kBesideProcessors = {
    "image_processor_config.json", "spk_dict.pt", "video_preprocessor_config.json"};
/// DeepSpeed lays them beside its checkpoints; they are no model's code.
constexpr std::array<std::string_view, 2> kTrainersCode = {"zero_to_fp32.py", "zero_to_torch.py"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_vocabulary(std::string_view name) {
  return is_one_of(name, kVocabularies) || name.ends_with(".tiktoken");
}

bool carries_group(std::string_view name, FileGroup group) {
  return group == FileGroup::kTokenizer ? is_vocabulary(name)
                                        : is_one_of(name, files_that_carry(group));
}

}  // namespace

std::optional<FileGroup> file_group(std::string_view name) {
  if (is_one_of(name, kConfigs) || name == "generation_config.json") return FileGroup::kConfig;
  if (is_vocabulary(name) || is_one_of(name, kBesideVocabularies) ||
      (name.starts_with("chat_template") && name.ends_with(".jinja")))
    return FileGroup::kTokenizer;
  if (is_one_of(name, kProcessors) || is_one_of(name, kBesideProcessors))
    return FileGroup::kProcessor;
  // Copied, never run.
  if (name.ends_with(".py") && !is_one_of(name, kTrainersCode)) return FileGroup::kCode;
  return std::nullopt;
}

std::span<const std::string_view> files_that_carry(FileGroup group) {
  switch (group) {
    case FileGroup::kConfig:
      return kConfigs;
    case FileGroup::kTokenizer:
      return kVocabularies;
    case FileGroup::kProcessor:
      return kProcessors;
    case FileGroup::kCode:
      break;
  }
  return {};
}

bool is_tokenizer_folder(std::string_view name) {
  return is_plain_name(name) && name.find("tokenizer") != std::string_view::npos;
}

bool carries(const Folder& folder, FileGroup group) {
  return std::any_of(
      folder.entries.begin(), folder.entries.end(), [&](const DirectoryEntry& entry) {
        return entry.type != FileType::kDirectory && carries_group(entry.name, group);
      });
}

}  // namespace evalcar::checkpoint
