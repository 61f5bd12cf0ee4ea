#include "evaluator/service/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#ifndef EVALCAR_VERSION
#error "EVALCAR_VERSION comes from the build"
#endif

namespace evalcar::service {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20U;
constexpr std::array<const char*, 2> kConfigFiles = {"config.json", "generation_config.json"};
constexpr std::array<const char*, 8> kTextFiles = {
    "tokenizer.json",        "tokenizer_config.json",    "special_tokens_map.json",
    "chat_template.jinja",   "chat_template.json",       "additional_chat_templates/default.jinja",
    "processor_config.json", "preprocessor_config.json",
};
constexpr std::array<const char*, 2> kProcessorFiles = {"processor_config.json",
                                                        "preprocessor_config.json"};

/// Each part with its length before it, so that no two lists of parts give the same bytes.
void add_to(Sha256& hash, std::string_view part) {
  hash.update(std::to_string(part.size()) + ":");
  hash.update(part);
}

Status add_file(const FileSystem& files, const std::string& path, Sha256& hash) {
  auto file = files.open_readable(path);
  if (!file.has_value()) {
    if (file.error().code != ErrorCode::kNotFound) return std::move(file).error();
    hash.update("absent;");
    return {};
  }
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, (*file)->info());
  hash.update(std::to_string(info.size_bytes) + ":");
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kBlockBytes, info.size_bytes)));
  for (std::uint64_t offset = 0; offset < info.size_bytes; offset += kBlockBytes) {
    const std::span<std::byte> part(
        block.data(), static_cast<std::size_t>(std::min(kBlockBytes, info.size_bytes - offset)));
    EVALCAR_RETURN_IF_ERROR((*file)->read_exactly_at(offset, part, path));
    hash.update(std::span<const std::byte>(part));
  }
  return {};
}

Status add_folder(const FileSystem& files, const std::string& folder,
                  std::span<const char* const> names, Sha256& hash) {
  for (const char* const name : names) {
    add_to(hash, name);
    EVALCAR_RETURN_IF_ERROR(add_file(files, join_path(folder, name), hash));
  }
  return {};
}

}  // namespace

Result<std::string> hash_model_files(const FileSystem& files, const ModelFolders& folders) {
  Sha256 hash;
  EVALCAR_RETURN_IF_ERROR(add_folder(files, folders.config, kConfigFiles, hash));
  EVALCAR_RETURN_IF_ERROR(add_folder(files, folders.tokenizer, kTextFiles, hash));
  if (!folders.processor.empty())
    EVALCAR_RETURN_IF_ERROR(add_folder(files, folders.processor, kProcessorFiles, hash));
  return to_hex(hash.finish());
}

std::string common_identity(const engine::LoadedWeights& weights,
                            const std::string& model_files_sha256,
                            const protocol::EvaluationSettings& settings,
                            const engine::RunChoice& choice) {
  protocol::EvaluationSettings effective = settings;
  effective.tasks.clear();      // a fingerprint is of one task,
  effective.data_dir.clear();   // of what its files hold,
  effective.tasks_dir.clear();  // not of where they lie,
  effective.batch_size = 0;     // and not of how the work is cut
  effective.attn_implementation = choice.attn_implementation;
  return std::string("evalcar ") + EVALCAR_VERSION + "\n" + weights.architecture + " " +
         weights.dtype + " " + model_files_sha256 + "\n" + protocol::encode_settings(effective);
}

std::string series_way(const engine::LoadedWeights& weights, const std::string& base_model) {
  return weights.dtype + "\n" + base_model;
}

TaskFingerprint::TaskFingerprint(std::string_view common, std::string_view way,
                                 const tasks::TaskFile& file, std::int64_t size,
                                 std::string_view data, std::string_view generation) {
  add_part(common);
  add_to(question_, way);
  add_to_both(file.name);
  add_to_both(file.version);
  add_to_both(file.content);
  add_to_both(std::to_string(size));
  add_to_both(data);
  add_to_both(generation);
}

void TaskFingerprint::add(std::int64_t doc_id, std::string_view document,
                          const engine::Request& request,
                          const std::vector<Sha256Digest>& pictures) {
  add_to_both(std::to_string(doc_id));
  add_to_both(document);
  hash_.update(std::to_string(request.tokens.size()) + " tokens:");
  hash_.update(std::as_bytes(std::span(request.tokens)));
  if (request.scoring.has_value()) add_scoring(*request.scoring);
  for (Sha256* const hash : {&hash_, &question_}) {
    hash->update(std::to_string(pictures.size()) + " pictures:");
    for (const Sha256Digest& picture : pictures) hash->update(std::as_bytes(std::span(picture)));
  }
}

void TaskFingerprint::add_scoring(const engine::Scoring& scoring) {
  for (const engine::TokenSpan& span : scoring.spans)
    add_part("scored " + std::to_string(span.begin) + " " + std::to_string(span.end));
  for (const std::vector<std::int32_t>& continuation : scoring.continuations) {
    hash_.update(std::to_string(continuation.size()) + " tokens behind:");
    hash_.update(std::as_bytes(std::span(continuation)));
  }
}

void TaskFingerprint::add_earlier(const TaskIdentity& earlier) {
  add_part(earlier.fingerprint);
  add_to(question_, earlier.question);
}

void TaskFingerprint::add_part(std::string_view part) { add_to(hash_, part); }

void TaskFingerprint::add_to_both(std::string_view part) {
  add_to(hash_, part);
  add_to(question_, part);
}

TaskIdentity TaskFingerprint::finish() {
  return {to_hex(hash_.finish()), to_hex(question_.finish())};
}

}  // namespace evalcar::service
