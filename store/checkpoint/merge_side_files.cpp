#include "store/checkpoint/merge_side_files.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "store/checkpoint/config_edit.h"
#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/model_files.h"
#include "store/checkpoint/tied_heads.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kMaxSideFile = std::uint64_t{256} << 20U;
constexpr std::size_t kMostTemplates = 1000;
constexpr std::size_t kMostTokenizerFiles = 1000;
constexpr std::size_t kMostTokenizers = 100;

/// A tokenizer's further chat templates, which transformers keeps in a folder.
void add_templates(const FileSystem& files, const Folder& folder, std::vector<SideFile>& found) {
  if (!folder.has(kTemplatesFolder)) return;
  if (!check_folder_inside(files, folder.path, std::string(kTemplatesFolder)).has_value()) return;
  const auto entries = files.list(join_path(folder.path, kTemplatesFolder), kMostTemplates);
  if (!entries.has_value()) return;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kDirectory && entry.name.ends_with(".jinja"))
      found.push_back({folder.path, join_path(kTemplatesFolder, entry.name), folder.is_kept_model});
  }
}

/// A link counts as the folder that it leads to.
bool is_folder(const FileSystem& files, const Folder& around, const DirectoryEntry& entry) {
  if (entry.type != FileType::kSymlink) return entry.type == FileType::kDirectory;
  const auto info = files.info_followed(join_path(around.path, entry.name));
  return info.has_value() && info->type == FileType::kDirectory;
}

/// The folders of a processor's further tokenizers, by name, without those in which there is no
/// file of a tokenizer's. One that is called so and is something else is left out, with a reason.
Result<std::map<std::string, Folder>> further_tokenizers(const FileSystem& files,
                                                         const Folder& folder,
                                                         std::vector<std::string>& left_out) {
  std::map<std::string, Folder> found;
  for (const DirectoryEntry& entry : folder.entries) {
    if (!is_tokenizer_folder(entry.name)) continue;
    if (entry.type == FileType::kSymlink && !file_group(entry.name) &&
        !files.info_followed(join_path(folder.path, entry.name)).has_value()) {
      left_out.push_back(join_path(folder.path, entry.name) + ": a link that leads nowhere");
    }
    if (!is_folder(files, folder, entry)) continue;
    if (found.size() == kMostTokenizers) {
      return make_error(ErrorCode::kUnsupported, folder.path + ": has more than " +
                                                     std::to_string(kMostTokenizers) +
                                                     " folders of tokenizers");
    }
    if (Status inside = check_folder_inside(files, folder.path, entry.name); !inside.has_value()) {
      left_out.push_back(inside.error().message);
      continue;
    }
    Folder inner{join_path(folder.path, entry.name), {}, folder.is_kept_model};
    EVALCAR_ASSIGN_OR_RETURN(inner.entries, files.list(inner.path));
    std::erase_if(inner.entries, [](const DirectoryEntry& file) {
      return file.type == FileType::kDirectory || file_group(file.name) != FileGroup::kTokenizer;
    });
    if (inner.entries.size() > kMostTokenizerFiles) {
      left_out.push_back(inner.path + ": has " + std::to_string(inner.entries.size()) +
                         " files of a tokenizer, more than any has");
      continue;
    }
    if (!inner.entries.empty()) found.emplace(entry.name, std::move(inner));
  }
  return found;
}

/// Adds each of them from the checkpoint, unless it cannot be loaded from what is there; else from
/// the other folder.
Status add_further_tokenizers(const FileSystem& files, const Folder& source, const Folder& fallback,
                              SideFiles& found) {
  EVALCAR_ASSIGN_OR_RETURN(auto chosen, further_tokenizers(files, source, found.left_out));
  EVALCAR_ASSIGN_OR_RETURN(auto others, further_tokenizers(files, fallback, found.left_out));
  for (auto& [name, other] : others) {
    const auto own = chosen.find(name);
    const bool better = own == chosen.end() || (!carries(own->second, FileGroup::kTokenizer) &&
                                                carries(other, FileGroup::kTokenizer));
    if (better) chosen.insert_or_assign(name, std::move(other));
  }
  for (const auto& [name, folder] : chosen) {
    for (const DirectoryEntry& entry : folder.entries) {
      found.files.push_back(
          {parent_path(folder.path), join_path(name, entry.name), folder.is_kept_model});
    }
  }
  return {};
}

/// Adds the files of those groups that `wanted` says; code stands for itself, file by file.
void add_groups(const FileSystem& files, const Folder& folder,
                const std::function<bool(FileGroup, const std::string&)>& wanted,
                std::vector<SideFile>& found) {
  for (std::string& name : side_files(folder)) {
    if (wanted(*file_group(name), name))
      found.push_back({folder.path, std::move(name), folder.is_kept_model});
  }
  if (wanted(FileGroup::kTokenizer, std::string(kTemplatesFolder)))
    add_templates(files, folder, found);
}

bool has_any_of(const Folder& folder, FileGroup group) {
  const std::vector<std::string> names = side_files(folder);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return file_group(name) == group; });
}

/// Whether a group comes from the checkpoint: unless nothing could be loaded of what it has.
bool is_own(const Folder& source, const Folder& fallback, FileGroup group) {
  if (carries(source, group)) return true;
  return !carries(fallback, group) && has_any_of(source, group);
}

Result<SideFiles> choose_side_files(const FileSystem& files, const MergeRequest& request) {
  SideFiles found;
  EVALCAR_ASSIGN_OR_RETURN(const Folder source, open_folder(files, request.source_dirs.back()));
  if (request.side_file_fallback_dir.empty()) {
    add_groups(files, source, [](FileGroup, const std::string&) { return true; }, found.files);
    EVALCAR_RETURN_IF_ERROR(add_further_tokenizers(files, source, Folder{}, found));
    return found;
  }
  EVALCAR_ASSIGN_OR_RETURN(Folder fallback, open_folder(files, request.side_file_fallback_dir));
  fallback.is_kept_model = true;
  const auto own = [&](FileGroup group, const std::string&) {
    return group == FileGroup::kCode || is_own(source, fallback, group);
  };
  add_groups(files, source, own, found.files);
  add_groups(
      files, fallback,
      [&](FileGroup group, const std::string& name) {
        return group == FileGroup::kCode ? !source.has(name) : !own(group, name);
      },
      found.files);
  EVALCAR_RETURN_IF_ERROR(add_further_tokenizers(files, source, fallback, found));
  return found;
}

Result<TieConfig> parse_tie_config(std::string text, const std::string& path) {
  EVALCAR_RETURN_IF_ERROR(check_json_object(text, path));
  replace_non_finite(text);
  return TieConfig::parse(text, path);
}

/// A file that lies may have very many heads of few parts.
void add_once(TieFlag flag, std::vector<TieFlag>& flags) {
  const auto known = std::ranges::find(flags, flag.part, &TieFlag::part);
  if (known == flags.end()) return flags.push_back(std::move(flag));
  known->is_needed = known->is_needed || flag.is_needed;
}

Result<std::unique_ptr<ReadableFile>> open_side_file(const FileSystem& files,
                                                     const SideFile& file) {
  return open_inside(files, Folder{file.folder, {}, file.of_kept_model}, file.name);
}

}  // namespace

Result<SideFiles> find_side_files(const FileSystem& files, const MergeRequest& request) {
  EVALCAR_ASSIGN_OR_RETURN(SideFiles found, choose_side_files(files, request));
  for (const SideFile& file : found.files) {
    if (auto opened = open_side_file(files, file); !opened.has_value()) return opened.error();
  }
  return found;
}

Result<std::optional<TieConfig>> read_tie_config(const FileSystem& files,
                                                 const MergeRequest& request) {
  EVALCAR_ASSIGN_OR_RETURN(const SideFiles sides, find_side_files(files, request));
  const auto config = std::ranges::find_if(
      sides.files, [](const SideFile& side) { return side.name == "config.json"; });
  if (config == sides.files.end()) return std::optional<TieConfig>();
  EVALCAR_ASSIGN_OR_RETURN(const auto opened, open_side_file(files, *config));
  const std::string path = join_path(config->folder, config->name);
  EVALCAR_ASSIGN_OR_RETURN(std::string text, read_file(*opened, path, kMaxSideFile));
  EVALCAR_ASSIGN_OR_RETURN(TieConfig ties, parse_tie_config(std::move(text), path));
  return std::optional(std::move(ties));
}

Result<SideFileContent> side_file_content(const FileSystem& files, const SideFile& file,
                                          const MergeRequest& request,
                                          const std::vector<std::string>& own_heads) {
  EVALCAR_ASSIGN_OR_RETURN(const auto opened, open_side_file(files, file));
  const std::string path = join_path(file.folder, file.name);
  SideFileContent content;
  EVALCAR_ASSIGN_OR_RETURN(content.text, read_file(*opened, path, kMaxSideFile));
  if (file.name != "config.json" || (!request.dtype && own_heads.empty())) return content;
  const std::optional<std::string> dtype =
      request.dtype ? std::optional(std::string(dtype_name(*request.dtype))) : std::nullopt;
  std::vector<TieFlag> given_up;
  if (!own_heads.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(const TieConfig config, parse_tie_config(content.text, path));
    std::vector<std::string_view> names;
    for (const TensorPlan& tensor : request.plans[0].tensors) names.push_back(tensor.name);
    const TiedHeads ties(config, names);
    for (const std::string& head : own_heads) {
      const HeadTie tie = ties.tie_of(head);
      content.still_tied = content.still_tied || tie == HeadTie::kKept;
      if (tie != HeadTie::kGivenUp) continue;
      content.untied = true;
      for (TieFlag& flag : config.flags_of(head).flags) add_once(std::move(flag), given_up);
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(content.text, edit_config(content.text, path, dtype, given_up));
  return content;
}

}  // namespace evalcar::checkpoint
