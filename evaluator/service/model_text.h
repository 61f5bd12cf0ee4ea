// What belongs to a model beside its weights: tokenizer, chat template, generation settings, and
// where its processor's files are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "evaluator/service/generation.h"
#include "evaluator/text/chat_template.h"
#include "evaluator/text/tokenizer.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::service {

/// Which folder each group of files is read from: the checkpoint's own where it has them, else the
/// base model's: as merge chooses them for a folder that it writes
/// (store/checkpoint/model_files.h), but that only a tokenizer.json is a tokenizer here. A trainer
/// that was given no processor saves config.json without a tokenizer, and a sharded save may hold
/// neither.
struct ModelFolders {
  std::string config;     ///< config.json, and generation_config.json if it is there
  std::string tokenizer;  ///< tokenizer.json, tokenizer_config.json, the chat template
  std::string processor;  ///< preprocessor_config.json or processor_config.json; "" = none needed
};

/// Whether the model of a folder's config.json takes pictures.
using ReadsPictures = std::function<Result<bool>(const std::string& config_dir)>;

/// `base_model` may be empty. kNotFound names the first file that neither folder has, and
/// evaluate.base_model. `reads_pictures` is asked where there is no processor: a text model does
/// without.
Result<ModelFolders> find_model_folders(const FileSystem& files, const std::string& checkpoint,
                                        const std::string& base_model,
                                        const ReadsPictures& reads_pictures);

/// Loaded with the weights.
struct ModelText {
  text::Tokenizer tokenizer;
  text::ChatTemplate chat_template;
  GenerationConfig generation;
  std::string processor_dir;       ///< "" = none
  std::string files_sha256;        ///< hash_model_files()
  std::int64_t max_positions = 0;  ///< config.json's max_position_embeddings; 0: it does not say
  std::string base_model = {};     ///< folder that holds what the checkpoint lacks; "" = none
};

/// Reads tokenizer, chat template and generation settings. A generation_config.json counts only
/// beside the config.json that is used: lmms-eval reads the folder that it is given, and one
/// without that file generates with the defaults.
Result<ModelText> load_model_text(const FileSystem& files, const ModelFolders& folders);

/// Makes `model` what load_model_text() gives. What is there is kept where the files hold the same,
/// as they do from checkpoint to checkpoint: a vocabulary takes a second to read, its hash a few
/// milliseconds. After an error `model` is as it was.
Status renew_model_text(const FileSystem& files, const ModelFolders& folders,
                        std::optional<ModelText>& model);

}  // namespace evalcar::service
