#include "store/checkpoint/merge.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/merge_pipeline.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/output_place.h"
#include "store/checkpoint/safetensors.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{2} << 20U;
constexpr std::string_view kTemporaryPrefix = ".evalcar-merge-";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
/// Headers, index and configuration beside the tensors; more than they ever take.
constexpr std::uint64_t kSpaceSlack = std::uint64_t{64} << 20U;

Error usage(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

/// The output is neither inside a source nor around one.
Status check_apart(const FileSystem& files, const std::string& output,
                   const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string real, files.real_path(source));
    if (output == real || output.starts_with(real + "/")) {
      return usage(output + ": lies inside the checkpoint " + real +
                   "; nothing is ever written there");
    }
    if (real.starts_with(output + "/")) {
      return usage(output + ": holds the checkpoint " + real + "; choose a folder of its own");
    }
  }
  return {};
}

Status check_same_tensors(const Plan& first, const Plan& other, const std::string& where) {
  const auto differs = [&](const std::string& what) {
    return usage(where + ": " + what + ", so its weights cannot be averaged with the others");
  };
  if (first.tensors.size() != other.tensors.size()) {
    return differs("has " + std::to_string(other.tensors.size()) + " tensors, expected " +
                   std::to_string(first.tensors.size()));
  }
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    const TensorPlan& a = first.tensors[i];
    const TensorPlan& b = other.tensors[i];
    if (a.name != b.name) return differs("has no tensor " + quote_name(a.name));
    if (a.shape != b.shape || a.dtype != b.dtype) {
      return differs("tensor " + quote_name(a.name) + " is " + std::string(dtype_name(b.dtype)) +
                     " " + shape_text(b.shape) + ", expected " + std::string(dtype_name(a.dtype)) +
                     " " + shape_text(a.shape));
    }
  }
  return {};
}

std::uint64_t output_bytes(const TensorPlan& tensor, const std::optional<DType>& cast) {
  return tensor.elements() * dtype_size(output_dtype(tensor, cast));
}

/// Fills files up to the limit, wide dtypes first (so that every tensor is aligned to its own
/// elements), then by name.
std::vector<MergedFile> split_into_files(const Plan& plan, const MergeRequest& request) {
  std::vector<std::size_t> order(plan.tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_size(output_dtype(plan.tensors[a], request.dtype)) >
           dtype_size(output_dtype(plan.tensors[b], request.dtype));
  });
  std::vector<MergedFile> files(1);
  for (const std::size_t i : order) {
    const std::uint64_t bytes = output_bytes(plan.tensors[i], request.dtype);
    if (!files.back().tensors.empty() && files.back().bytes + bytes > request.max_shard_bytes) {
      files.emplace_back();
    }
    files.back().tensors.push_back(i);
    files.back().bytes += bytes;
  }
  const auto number = [](std::size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1
                        ? "model.safetensors"
                        : "model-" + number(i + 1) + "-of-" + number(files.size()) + ".safetensors";
  }
  return files;
}

/// Side files with the folder that each is taken from: the last checkpoint's own first.
Result<std::vector<std::pair<std::string, std::string>>> find_side_files(
    const FileSystem& files, const MergeRequest& request) {
  std::vector<std::pair<std::string, std::string>> found;
  EVALCAR_ASSIGN_OR_RETURN(const Folder source, open_folder(files, request.source_dirs.back()));
  for (std::string& name : side_files(source)) found.emplace_back(source.path, std::move(name));
  if (request.side_file_fallback_dir.empty()) return found;
  EVALCAR_ASSIGN_OR_RETURN(const Folder fallback,
                           open_folder(files, request.side_file_fallback_dir));
  for (std::string& name : side_files(fallback)) {
    if (!source.has(name)) found.emplace_back(fallback.path, std::move(name));
  }
  return found;
}

/// config.json names the dtype in which from_pretrained loads; after a cast it has to be the new
/// one. Both spellings (transformers 4: torch_dtype, 5: dtype), also in nested configurations.
void set_config_dtype(nlohmann::ordered_json& config, std::string_view dtype, int depth) {
  if (!config.is_object() || depth > 3) return;
  for (auto& [key, value] : config.items()) {
    if ((key == "torch_dtype" || key == "dtype") && value.is_string()) value = dtype;
    if (value.is_object()) set_config_dtype(value, dtype, depth + 1);
  }
}

Result<std::string> side_file_content(const FileSystem& files, const std::string& folder,
                                      const std::string& name, const MergeRequest& request) {
  constexpr std::uint64_t kMaxSideFile = std::uint64_t{256} << 20U;
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder, name));
  EVALCAR_ASSIGN_OR_RETURN(std::string text,
                           read_file(files, join_path(folder, name), kMaxSideFile));
  if (name != "config.json" || !request.dtype) return text;
  auto config = nlohmann::ordered_json::parse(text, nullptr, false);
  if (config.is_discarded()) {
    return make_error(ErrorCode::kCorruption, join_path(folder, name) + ": is not valid JSON");
  }
  set_config_dtype(config, dtype_name(*request.dtype), 0);
  return config.dump(2) + "\n";
}

Status write_synced(FileSystem& files, const std::string& path, std::string_view content) {
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files.create(path, 0644));
  EVALCAR_RETURN_IF_ERROR(file->append(content));
  EVALCAR_RETURN_IF_ERROR(file->sync());
  return file->close();
}

std::string index_json(const Plan& plan, const MergeReport& report) {
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_size", report.tensor_bytes}};
  nlohmann::json weight_map = nlohmann::json::object();  // sorted by name
  for (const MergedFile& file : report.files) {
    for (const std::size_t i : file.tensors) weight_map[plan.tensors[i].name] = file.name;
  }
  index["weight_map"] = weight_map;
  return index.dump(2) + "\n";
}

/// mkdir -p that outlives a power cut: the parent of each new folder is synced.
Status make_durable_directories(FileSystem& files, const std::string& path) {
  if (files.info_followed(path).has_value()) return make_directories(files, path);
  const std::string parent = parent_path(path);
  if (parent != path) EVALCAR_RETURN_IF_ERROR(make_durable_directories(files, parent));
  EVALCAR_RETURN_IF_ERROR(make_directories(files, path));
  return files.sync_directory(parent);
}

/// The temporary folder beside the target; removed unless it was published.
class Staging {
 public:
  Staging(FileSystem& files, const std::string& output)
      : files_(files),
        output_(output),
        path_(join_path(parent_path(output), std::string(kTemporaryPrefix) + base_name(output) +
                                                 "." + std::to_string(::getpid()))) {}
  ~Staging() {
    if (!published_) (void)remove_tree(files_, path_);  // nothing more can be done about it
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  const std::string& path() const { return path_; }

  Status make() {
    EVALCAR_RETURN_IF_ERROR(make_durable_directories(files_, parent_path(output_)));
    remove_leftovers();
    EVALCAR_RETURN_IF_ERROR(remove_tree(files_, path_));
    return files_.make_directory(path_, 0755);
  }

  Status publish(bool replace) {
    EVALCAR_RETURN_IF_ERROR(files_.sync_directory(path_));
    const std::string old = path_ + ".old";
    const bool exists = files_.info(output_).has_value();
    if (exists && replace) {
      EVALCAR_RETURN_IF_ERROR(remove_tree(files_, old));
      EVALCAR_RETURN_IF_ERROR(files_.rename(output_, old));
    } else if (exists) {
      EVALCAR_RETURN_IF_ERROR(files_.remove_directory(output_));  // empty, or this fails
    }
    EVALCAR_RETURN_IF_ERROR(files_.rename(path_, output_));
    published_ = true;
    if (exists && replace) EVALCAR_RETURN_IF_ERROR(remove_tree(files_, old));
    return files_.sync_directory(parent_path(output_));
  }

 private:
  /// Temporary folders of merges to the same target whose process is gone.
  void remove_leftovers() {
    const std::string parent = parent_path(output_);
    const std::string prefix = std::string(kTemporaryPrefix) + base_name(output_) + ".";
    const auto entries = files_.list(parent);
    if (!entries.has_value()) return;
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.name.starts_with(prefix)) continue;
      const std::string_view digits = std::string_view(entry.name).substr(prefix.size());
      pid_t pid = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
      const std::string_view rest = digits.substr(static_cast<std::size_t>(end - digits.data()));
      if (error != std::errc() || pid <= 0 || (!rest.empty() && rest != ".old")) continue;
      if (pid != ::getpid() && ::kill(pid, 0) != 0 && errno == ESRCH) {
        (void)remove_tree(files_, join_path(parent, entry.name));  // ours, and nobody's any more
      }
    }
  }

  FileSystem& files_;
  std::string output_;
  std::string path_;
  bool published_ = false;
};

Status write_weights(FileSystem& files, const MergeRequest& request, const MergedFile& file,
                     const std::string& path, const MergeSource& source, std::uint64_t& written) {
  const Plan& plan = *source.plan;
  std::vector<SafetensorsTensor> header;
  std::vector<MergeChunk> chunks;
  std::uint64_t position = 0;
  for (const std::size_t i : file.tensors) {
    const TensorPlan& tensor = plan.tensors[i];
    const std::uint64_t bytes = output_bytes(tensor, request.dtype);
    header.push_back({tensor.name, output_dtype(tensor, request.dtype), tensor.shape, position,
                      position + bytes});
    position += bytes;
    for (Box& box : row_major_boxes(tensor, kChunkBytes)) chunks.push_back({i, std::move(box)});
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string head,
                           make_safetensors_header(header, {{"format", "pt"}}));
  EVALCAR_ASSIGN_OR_RETURN(const auto out, files.create(path, 0644));
  EVALCAR_RETURN_IF_ERROR(out->append(head));
  const auto sink = [&](std::span<const std::byte> bytes) -> Status {
    EVALCAR_RETURN_IF_ERROR(out->append(bytes));
    written += bytes.size();
    if (request.on_progress) request.on_progress(written);
    return {};
  };
  EVALCAR_RETURN_IF_ERROR(run_merge_pipeline(source, chunks, request.threads, sink));
  EVALCAR_RETURN_IF_ERROR(out->sync());
  return out->close();
}

}  // namespace

Result<MergeReport> plan_merge(const FileSystem& files, const MergeRequest& request) {
  if (request.plans.empty() || request.plans.size() != request.source_dirs.size()) {
    return make_error(ErrorCode::kInternal, "merge: as many plans as source folders are needed");
  }
  for (std::size_t i = 1; i < request.plans.size(); ++i) {
    EVALCAR_RETURN_IF_ERROR(
        check_same_tensors(request.plans[0], request.plans[i], request.source_dirs[i]));
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string output, resolve_output(files, request.output_dir));
  EVALCAR_RETURN_IF_ERROR(check_output_place(files, request.output_dir, OutputUse::kReplaced));
  EVALCAR_RETURN_IF_ERROR(check_apart(files, output, request.source_dirs));
  if (const auto info = files.info(output); info.has_value() && !request.replace_output) {
    const auto entries = files.list(output);
    if (info->type != FileType::kDirectory || !entries.has_value() || !entries->empty()) {
      return usage(output + ": exists already; give an empty or a new folder");
    }
  }
  MergeReport report;
  report.files = split_into_files(request.plans[0], request);
  for (const MergedFile& file : report.files) report.tensor_bytes += file.bytes;
  EVALCAR_ASSIGN_OR_RETURN(const auto sides, find_side_files(files, request));
  for (const auto& [folder, name] : sides) report.side_files.push_back(name);
  return report;
}

Result<MergeReport> merge(FileSystem& files, const MergeRequest& request) {
  EVALCAR_ASSIGN_OR_RETURN(MergeReport report, plan_merge(files, request));
  EVALCAR_ASSIGN_OR_RETURN(const std::string output, resolve_output(files, request.output_dir));
  const Plan& plan = request.plans[0];

  std::vector<PlanReader> readers;
  MergeSource source{&plan, {}, request.dtype, request.cancelled};
  for (const Plan& each : request.plans) {
    EVALCAR_ASSIGN_OR_RETURN(PlanReader reader, PlanReader::open(files, each));
    readers.push_back(std::move(reader));
  }
  for (const PlanReader& reader : readers) source.readers.push_back(&reader);

  Staging staging(files, output);
  EVALCAR_RETURN_IF_ERROR(staging.make());
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t available, files.free_bytes(staging.path()));
  if (available < report.tensor_bytes + kSpaceSlack) {
    return make_error(ErrorCode::kUnavailable,
                      output + ": " + std::to_string(available >> 20U) +
                          " MiB free, the merged weights need " +
                          std::to_string((report.tensor_bytes + kSpaceSlack) >> 20U) + " MiB");
  }
  std::uint64_t written = 0;
  for (const MergedFile& file : report.files) {
    EVALCAR_RETURN_IF_ERROR(
        write_weights(files, request, file, join_path(staging.path(), file.name), source, written));
  }
  for (const PlanReader& reader : readers) {
    EVALCAR_RETURN_IF_ERROR(reader.verify_checksums(request.threads));
    EVALCAR_RETURN_IF_ERROR(reader.verify_unchanged());
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto sides, find_side_files(files, request));
  for (const auto& [folder, name] : sides) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string text,
                             side_file_content(files, folder, name, request));
    EVALCAR_RETURN_IF_ERROR(write_synced(files, join_path(staging.path(), name), text));
  }
  if (report.files.size() > 1) {
    EVALCAR_RETURN_IF_ERROR(
        write_synced(files, join_path(staging.path(), kIndexName), index_json(plan, report)));
  }
  EVALCAR_RETURN_IF_ERROR(staging.publish(request.replace_output));
  return report;
}

}  // namespace evalcar::checkpoint
