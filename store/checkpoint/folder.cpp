#include "store/checkpoint/folder.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/model_files.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

bool is_within(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

/// The folder that links out of `folder` may lead to: itself, or the repository of a hub cache.
std::string allowed_root(const std::string& real_folder) {
  const std::string snapshots = parent_path(real_folder);
  return base_name(snapshots) == "snapshots" ? join_path(parent_path(snapshots), "blobs")
                                             : real_folder;
}

/// `…/models--org--name/blobs/<file>`
bool is_hub_blob(const std::string& real) {
  const std::string blobs = parent_path(real);
  return base_name(blobs) == "blobs" && base_name(parent_path(blobs)).starts_with("models--");
}

Error not_there_yet(const std::string& path) {
  return make_error(ErrorCode::kUnavailable, path + ": is missing");
}

/// Where a link in a folder leads; kCorruption if that is a place which is not read from. A place
/// in the folder is named by the path of the folder: who guards a tree knows it by that.
Result<std::string> allowed_target(const FileSystem& files, const Folder& where,
                                   const std::string& link) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string real_folder, files.real_path(where.path));
  auto target = files.real_path(link);
  if (!target.has_value()) {
    return make_error(ErrorCode::kCorruption, link + ": a link that leads nowhere");
  }
  if (is_within(*target, real_folder)) {
    return join_path(where.path, std::string_view(*target).substr(real_folder.size() + 1));
  }
  const bool allowed = is_within(*target, allowed_root(real_folder)) ||
                       (where.is_kept_model && is_hub_blob(*target));
  if (allowed) return target;
  return make_error(ErrorCode::kCorruption,
                    link + ": a link out of the checkpoint's folder, which is not followed");
}

}  // namespace

bool Folder::has(std::string_view name) const {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirectoryEntry& entry) { return entry.name == name; });
}

Result<Folder> open_folder(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files.info_followed(path));
  if (info.type != FileType::kDirectory) {
    return make_error(ErrorCode::kNotFound, path + ": is not a folder");
  }
  EVALCAR_ASSIGN_OR_RETURN(auto entries, files.list(path));
  return Folder{path, std::move(entries)};
}

std::vector<std::string> side_files(const Folder& folder) {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : folder.entries) {
    if (entry.type != FileType::kDirectory && file_group(entry.name)) names.push_back(entry.name);
  }
  return names;
}

Status check_side_files(const FileSystem& files, const Folder& folder,
                        const LayoutOptions& options) {
  if (!folder.has("config.json")) {
    if (options.weights_only || !options.base_model.empty()) return {};
    return not_there_yet(join_path(folder.path, "config.json"));
  }
  for (const std::string& name : side_files(folder)) {
    // The tokenizer's files can be tens of megabytes; they are written before config.json or before
    // trainer_state.json, and the evaluator parses them itself.
    const bool small = name.ends_with("config.json") || name == "special_tokens_map.json";
    EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder.path, name));
    if (!small) continue;
    const std::string path = join_path(folder.path, name);
    EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(*file, path, kMaxConfigBytes));
    EVALCAR_RETURN_IF_ERROR(check_json_object(text, path));
  }
  return {};
}

Result<std::unique_ptr<ReadableFile>> open_inside(const FileSystem& files,
                                                  const std::string& folder,
                                                  const std::string& name) {
  return open_inside(files, Folder{folder, {}}, name);
}

Result<std::unique_ptr<ReadableFile>> open_inside(const FileSystem& files, const Folder& where,
                                                  const std::string& name) {
  const std::string path = join_path(where.path, name);
  auto info = files.info(path);
  std::string real = path;
  if (info.has_value() && info->type == FileType::kSymlink) {
    EVALCAR_ASSIGN_OR_RETURN(real, allowed_target(files, where, path));
    info = files.info(real);
  }
  if (!info.has_value()) {
    if (info.error().code == ErrorCode::kNotFound) return not_there_yet(path);
    return info.error();
  }
  if (info->type != FileType::kRegular) {
    return make_error(ErrorCode::kCorruption, path + ": not a regular file");
  }
  auto opened = files.open_readable(real);
  if (!opened.has_value()) {
    Error error = opened.error();
    if (error.code == ErrorCode::kNotFound) return not_there_yet(path);
    if (error.code == ErrorCode::kInvalidArgument) {
      return make_error(ErrorCode::kCorruption, error.message);
    }
    return error;
  }
  // What was looked at and what was opened may differ: a writer, or somebody who wants a file of
  // another place read, may put a link there in between.
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo found, (*opened)->info());
  if (found.device != info->device || found.inode != info->inode) {
    return make_error(ErrorCode::kUnavailable, path + ": was replaced while it was opened");
  }
  return opened;
}

Result<std::string> read_inside(const FileSystem& files, const Folder& folder,
                                const std::string& name, std::uint64_t limit_bytes) {
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder, name));
  return read_file(*file, join_path(folder.path, name), limit_bytes);
}

Status check_folder_inside(const FileSystem& files, const std::string& folder,
                           const std::string& name) {
  const std::string path = join_path(folder, name);
  const auto info = files.info(path);
  if (!info.has_value() || info->type != FileType::kSymlink) return {};
  const auto real_folder = files.real_path(folder);
  const auto target = files.real_path(path);
  if (!real_folder.has_value() || !target.has_value()) return {};  // gone, or leads nowhere
  if (is_within(*target, *real_folder)) return {};
  return make_error(ErrorCode::kCorruption,
                    path + ": a link out of the checkpoint's folder, which is not followed");
}

Status check_unchanged(const ReadableFile& file, const FileInfo& before, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo after, file.info());
  if (after.same_content_identity(before)) return {};
  return make_error(ErrorCode::kUnavailable, path + ": is being written");
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

void find_ties(Plan& plan) {
  // Tensors that begin at the same place with the same view of it come together, in the plan's
  // order; each is compared with the first of them, then all pieces must agree.
  std::vector<std::uint32_t> order;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    plan.tensors[i].tied_to.reset();
    if (!plan.tensors[i].pieces.empty() && plan.tensors[i].is_stored_as_is()) {
      order.push_back(static_cast<std::uint32_t>(i));
    }
  }
  const auto view = [&](std::uint32_t i) {
    const TensorPlan& tensor = plan.tensors[i];
    const Piece& first = tensor.pieces[0];
    return std::tie(first.file, first.file_offset, tensor.dtype, tensor.shape,
                    first.stride_elements);
  };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return view(a) != view(b) ? view(a) < view(b) : a < b;
  });
  std::size_t first = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (view(order[i]) != view(order[first])) {
      first = i;
      continue;
    }
    TensorPlan& tensor = plan.tensors[order[i]];
    const TensorPlan& other = plan.tensors[order[first]];
    const bool same =
        std::equal(tensor.pieces.begin(), tensor.pieces.end(), other.pieces.begin(),
                   other.pieces.end(), [](const Piece& a, const Piece& b) {
                     return std::tie(a.file, a.file_offset, a.start, a.size, a.stride_elements) ==
                            std::tie(b.file, b.file_offset, b.start, b.size, b.stride_elements);
                   });
    if (same) tensor.tied_to = order[first];
  }
}

}  // namespace evalcar::checkpoint
