#include "store/checkpoint/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "store/checkpoint/layout.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/torch_tensor.h"
#include "store/checkpoint/torch_zip.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kOptimizerEnd = "_mp_rank_00_optim_states.pt";
constexpr std::string_view kModelEnd = "_mp_rank_00_model_states.pt";
constexpr std::string_view kModelName = "mp_rank_00_model_states.pt";
constexpr std::uint64_t kMaxLatestBytes = 256;

bool is_states_file(std::string_view name) {
  // Pipeline stages: "layer_00-model_states.pt".
  return name.ends_with("optim_states.pt") || name.ends_with("model_states.pt");
}

bool any_states(const Folder& folder) {
  return std::any_of(folder.entries.begin(), folder.entries.end(),
                     [](const DirectoryEntry& entry) { return is_states_file(entry.name); });
}

/// R of "[bf16_|fp16_]zero_pp_rank_R<end>", canonical.
std::optional<int> rank_in(std::string_view name, std::string_view end) {
  for (const std::string_view prefix : {"bf16_", "fp16_"}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  constexpr std::string_view kStart = "zero_pp_rank_";
  if (!name.starts_with(kStart) || !name.ends_with(end)) return std::nullopt;
  name = name.substr(kStart.size(), name.size() - kStart.size() - end.size());
  int rank = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || stop != name.data() + name.size() || rank < 0 || name[0] == '-' ||
      (name.size() > 1 && name[0] == '0')) {
    return std::nullopt;
  }
  return rank;
}

/// The tag's folder, relative; empty for a checkpoint that is one itself.
Result<std::string> find_tag(const FileSystem& files, const Folder& folder) {
  if (any_states(folder)) return std::string();
  const std::string path = join_path(folder.path, "latest");
  EVALCAR_ASSIGN_OR_RETURN(std::string tag, read_inside(files, folder, "latest", kMaxLatestBytes));
  tag.erase(
      std::find_if(tag.rbegin(), tag.rend(), [](char c) { return c != '\n' && c != ' '; }).base(),
      tag.end());
  if (tag.empty()) return make_error(ErrorCode::kUnavailable, path + ": is empty");
  if (!is_plain_name(tag)) {
    return make_error(ErrorCode::kCorruption,
                      path + ": names " + quote_name(tag) + ", expected a folder beside it");
  }
  if (!folder.has(tag)) {
    return make_error(ErrorCode::kUnavailable, join_path(folder.path, tag) + ": is missing");
  }
  // A link could lead out of the checkpoint.
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files.info(join_path(folder.path, tag)));
  if (info.type != FileType::kDirectory) {
    return make_error(ErrorCode::kCorruption, join_path(folder.path, tag) + ": is not a folder");
  }
  return tag;
}

Result<std::vector<std::string>> in_order(const std::map<int, std::string>& by_rank,
                                          const std::string& path, const std::string& what) {
  std::vector<std::string> names;
  for (const auto& [rank, name] : by_rank) {
    if (rank != static_cast<int>(names.size())) {
      return make_error(ErrorCode::kUnavailable, path + ": the " + what + " of rank " +
                                                     std::to_string(names.size()) + " is missing");
    }
    names.push_back(name);
  }
  return names;
}

/// Under ZeRO each rank's optimizer has a file of its own, and its place here holds None.
bool holds_optimizer(const FileSystem& files, const std::string& folder, const std::string& name) {
  const auto file = open_inside(files, folder, name);
  if (!file.has_value()) return false;
  const auto read = TorchFile::read(**file, join_path(folder, name), PickleNames::kDeepspeed);
  if (!read.has_value()) return false;
  const Pickle& pickle = read->pickle;
  const auto optimizer = pickle.find(pickle.root(), "optimizer");
  return optimizer && pickle.kind(*optimizer) != PickleKind::kNone;
}

}  // namespace

bool looks_like_deepspeed(const Folder& folder) {
  const bool by_latest =
      folder.has("latest") && (folder.has("zero_to_fp32.py") || folder.has("pytorch_model"));
  return by_latest || any_states(folder) ||
         std::any_of(folder.entries.begin(), folder.entries.end(), [](const DirectoryEntry& entry) {
           return step_of_name(entry.name, "global_step{step}").has_value();
         });
}

Result<DeepspeedFiles> list_deepspeed(const FileSystem& files, const Folder& folder) {
  DeepspeedFiles found;
  EVALCAR_ASSIGN_OR_RETURN(found.folder, find_tag(files, folder));
  const std::string path =
      found.folder.empty() ? folder.path : join_path(folder.path, found.folder);
  EVALCAR_ASSIGN_OR_RETURN(const Folder tag, open_folder(files, path));
  std::map<int, std::string> optimizers;
  std::map<int, std::string> models;
  for (const DirectoryEntry& entry : tag.entries) {
    if (!is_states_file(entry.name)) continue;
    const std::string relative =
        found.folder.empty() ? entry.name : join_path(found.folder, entry.name);
    if (const auto rank = rank_in(entry.name, kOptimizerEnd)) {
      if (!optimizers.emplace(*rank, relative).second) {
        return make_error(ErrorCode::kCorruption,
                          path + ": holds two optimizer states of rank " + std::to_string(*rank));
      }
    } else if (const auto model_rank = rank_in(entry.name, kModelEnd)) {
      if (!models.emplace(*model_rank, relative).second) {
        return make_error(ErrorCode::kCorruption,
                          path + ": holds two model states of rank " + std::to_string(*model_rank));
      }
    } else if (entry.name == kModelName) {
      found.model = relative;
    } else {
      return make_error(ErrorCode::kUnsupported,
                        join_path(path, entry.name) +
                            ": is of pipeline, tensor or expert parallelism, which is not read; "
                            "only ZeRO's data parallelism is");
    }
    EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, path, entry.name));
    EVALCAR_RETURN_IF_ERROR(check_zip_is_whole(*file, join_path(path, entry.name)));
  }
  if (optimizers.empty() && !found.model.empty() &&
      holds_optimizer(files, path, base_name(found.model))) {
    return make_error(ErrorCode::kUnsupported,
                      join_path(folder.path, found.model) +
                          ": is of DeepSpeed without ZeRO (stage 0: the optimizer lies in the same "
                          "file), which is not read; let the trainer save the model itself "
                          "(save_pretrained), or train with ZeRO stage 1 to 3");
  }
  if (optimizers.empty()) {
    return make_error(ErrorCode::kUnavailable, path + ": holds no *_optim_states.pt");
  }
  EVALCAR_ASSIGN_OR_RETURN(found.optimizers, in_order(optimizers, path, "optimizer state"));
  EVALCAR_ASSIGN_OR_RETURN(found.rank_models, in_order(models, path, "model state"));
  return found;
}

}  // namespace evalcar::checkpoint
