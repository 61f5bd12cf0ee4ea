#include "evaluator/service/model_text.h"

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "evaluator/service/fingerprint.h"
#include "store/checkpoint/model_files.h"

namespace evalcar::service {
namespace {

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{16} << 20U;

using checkpoint::FileGroup;
using checkpoint::files_that_carry;

/// The first of the two folders that holds any of the files.
Result<std::string> folder_with(const FileSystem& files, const std::array<std::string, 2>& folders,
                                std::span<const std::string_view> names) {
  for (const std::string& folder : folders) {
    for (const std::string_view name : names) {
      if (!folder.empty() && files.info_followed(join_path(folder, name)).has_value())
        return folder;
    }
  }
  std::string wanted;
  for (const std::string_view name : names)
    wanted += (wanted.empty() ? "" : " nor ") + std::string(name);
  return make_error(ErrorCode::kNotFound,
                    folders[0] + ": no " + wanted +
                        (folders[1].empty()
                             ? "; set evaluate.base_model to the folder of the model that training "
                               "started from"
                             : "; and none in evaluate.base_model = " + folders[1]));
}

// Of the language model, which has a part of the file to itself where there is a vision tower, too.
// What else the file holds is checked where the weights are loaded.
Result<std::int64_t> read_max_positions(const FileSystem& files, const ModelFolders& folders) {
  const std::string path = join_path(folders.config, "config.json");
  EVALCAR_ASSIGN_OR_RETURN(const std::string content, read_file(files, path, kMostConfigBytes));
  const nlohmann::json config = nlohmann::json::parse(content, nullptr, false);
  if (!config.is_object()) return make_error(ErrorCode::kCorruption, path + ": no JSON object");
  for (const nlohmann::json* part :
       {&config, config.contains("text_config") ? &config["text_config"] : nullptr}) {
    if (part == nullptr || !part->is_object()) continue;
    const auto found = part->find("max_position_embeddings");
    if (found != part->end() && found->is_number_integer()) return found->get<std::int64_t>();
  }
  return std::int64_t{0};
}

}  // namespace

Result<ModelFolders> find_model_folders(const FileSystem& files, const std::string& checkpoint,
                                        const std::string& base_model,
                                        const ReadsPictures& reads_pictures) {
  const std::array<std::string, 2> folders = {checkpoint, base_model};
  ModelFolders found;
  EVALCAR_ASSIGN_OR_RETURN(found.config,
                           folder_with(files, folders, files_that_carry(FileGroup::kConfig)));
  constexpr std::array<std::string_view, 1> kTokenizers = {checkpoint::kFastTokenizer};
  EVALCAR_ASSIGN_OR_RETURN(found.tokenizer, folder_with(files, folders, kTokenizers));
  auto processor = folder_with(files, folders, files_that_carry(FileGroup::kProcessor));
  if (processor.has_value()) {
    found.processor = std::move(processor).value();
    return found;
  }
  EVALCAR_ASSIGN_OR_RETURN(const bool needed, reads_pictures(found.config));
  if (needed) return std::move(processor).error();
  return found;
}

Result<ModelText> load_model_text(const FileSystem& files, const ModelFolders& folders) {
  EVALCAR_ASSIGN_OR_RETURN(text::Tokenizer tokenizer,
                           text::Tokenizer::load(files, folders.tokenizer));
  EVALCAR_ASSIGN_OR_RETURN(text::ChatTemplate chat_template,
                           text::ChatTemplate::load(files, folders.tokenizer));
  EVALCAR_ASSIGN_OR_RETURN(const GenerationConfig generation,
                           load_generation_config(files, folders.config));
  EVALCAR_ASSIGN_OR_RETURN(std::string sha256, hash_model_files(files, folders));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t max_positions, read_max_positions(files, folders));
  return ModelText{std::move(tokenizer), std::move(chat_template), generation,
                   folders.processor,    std::move(sha256),        max_positions};
}

Status renew_model_text(const FileSystem& files, const ModelFolders& folders,
                        std::optional<ModelText>& model) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string sha256, hash_model_files(files, folders));
  if (model.has_value() && model->files_sha256 == sha256) {
    model->processor_dir = folders.processor;
    return {};
  }
  EVALCAR_ASSIGN_OR_RETURN(ModelText fresh, load_model_text(files, folders));
  if (fresh.files_sha256 != sha256) {  // it would be taken for what it is not, again and again
    return make_error(ErrorCode::kUnavailable,
                      folders.tokenizer + ": the model's files change while they are read");
  }
  model.emplace(std::move(fresh));
  return {};
}

}  // namespace evalcar::service
