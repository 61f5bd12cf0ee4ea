#include "store/checkpoint/merge.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "store/checkpoint/averaged.h"
#include "store/checkpoint/convert.h"
#include "store/checkpoint/merge_pipeline.h"
#include "store/checkpoint/merge_side_files.h"
#include "store/checkpoint/merge_staging.h"
#include "store/checkpoint/merge_weights.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/output_place.h"
#include "store/checkpoint/tied_copies.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
/// Headers, index and configuration beside the tensors; more than they ever take.
constexpr std::uint64_t kSpaceSlack = std::uint64_t{64} << 20U;

Error usage(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

/// The output is neither inside a source nor around one. A run folder whose final model is the
/// source has room for others.
Status check_apart(const FileSystem& files, const std::string& output,
                   const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string real, files.real_path(source));
    const bool inside = output.starts_with(real + "/") && !is_run_folder(files, real);
    if (output == real || inside) {
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
    if (is_scaled(a.dtype)) return with_context(not_averaged(a), where);
    if (a.name != b.name) return differs("has no tensor " + quote_name(a.name));
    if (a.shape == b.shape && a.dtype != b.dtype && is_convertible(a.dtype) &&
        is_convertible(b.dtype)) {
      return usage(where + ": tensor " + quote_name(a.name) + " is " +
                   std::string(dtype_name(b.dtype)) + ", in the first checkpoint " +
                   std::string(dtype_name(a.dtype)) +
                   "; weights of one dtype are averaged: first `evalcar merge --dtype "
                   "float32` each checkpoint to a folder of its own, then --merge these");
    }
    if (a.shape != b.shape || a.dtype != b.dtype) {
      return differs("tensor " + quote_name(a.name) + " is " + std::string(dtype_name(b.dtype)) +
                     " " + shape_text(b.shape) + ", expected " + std::string(dtype_name(a.dtype)) +
                     " " + shape_text(a.shape));
    }
  }
  return {};
}

Status check_weights(const MergeRequest& request) {
  if (request.weights.size() != request.plans.size()) {
    return usage("--merge-weights: " + std::to_string(request.weights.size()) +
                 " weights are given for " + std::to_string(request.plans.size()) + " checkpoints");
  }
  for (const double weight : request.weights) {
    if (std::isfinite(weight) && weight > 0) continue;
    const std::string seen =
        std::isfinite(weight) ? nlohmann::json(weight).dump() : std::to_string(weight);
    return usage("--merge-weights: " + seen + ": expected a positive number");
  }
  return {};
}

/// The same weights beside each other, the largest from 1 to 2, so that no sum of them or of what
/// they are multiplied with leaves float64's range. By a power of two: no bit of a mean changes.
std::vector<double> in_range(std::vector<double> weights) {
  const int exponent = std::ilogb(*std::ranges::max_element(weights));
  for (double& weight : weights) weight = std::scalbn(weight, -exponent);
  return weights;
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

/// The nearest folder around `path` that is there.
std::string existing_parent(const FileSystem& files, const std::string& path) {
  std::string parent = parent_path(path);
  while (parent != parent_path(parent) && !files.info_followed(parent).has_value()) {
    parent = parent_path(parent);
  }
  return parent;
}

Status check_free_space(const FileSystem& files, const std::string& output, std::uint64_t bytes) {
  // A folder that is there may be a disk of its own.
  const bool is_there = files.info_followed(output).has_value();
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t available,
                           files.free_bytes(is_there ? output : existing_parent(files, output)));
  if (available >= bytes + kSpaceSlack) return {};
  return make_error(ErrorCode::kIo,
                    output + ": " + std::to_string(available >> 20U) +
                        " MiB free, the merged weights need " +
                        std::to_string((bytes + kSpaceSlack) >> 20U) +
                        " MiB; make room, give an --output_dir on another disk, or a smaller "
                        "--dtype");
}

Status check_request(const FileSystem& files, const MergeRequest& request) {
  if (request.plans.empty() || request.plans.size() != request.source_dirs.size()) {
    return make_error(ErrorCode::kInternal, "merge: as many plans as source folders are needed");
  }
  for (std::size_t i = 1; i < request.plans.size(); ++i) {
    EVALCAR_RETURN_IF_ERROR(
        check_same_tensors(request.plans[0], request.plans[i], request.source_dirs[i]));
  }
  if (!request.weights.empty()) EVALCAR_RETURN_IF_ERROR(check_weights(request));
  EVALCAR_ASSIGN_OR_RETURN(const std::string output, resolve_output(files, request.output_dir));
  EVALCAR_RETURN_IF_ERROR(check_output_place(files, request.output_dir, OutputUse::kReplaced));
  EVALCAR_RETURN_IF_ERROR(check_apart(files, output, request.source_dirs));
  if (const auto info = files.info(output); info.has_value() && !request.replace_output) {
    if (info->type != FileType::kDirectory || !MergeStaging::is_free(files, output)) {
      return usage(output + ": exists already; give an empty or a new folder");
    }
  }
  return {};
}

Result<MergeReport> plan_completed(const FileSystem& files, const MergeRequest& request) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string output, resolve_output(files, request.output_dir));
  MergeReport report;
  report.files = split_into_files(request.plans[0], request);
  for (const MergedFile& file : report.files) {
    report.tensor_bytes += file.bytes;
    const auto header =
        make_safetensors_header(tensors_of(request.plans[0], file, request.dtype), {});
    if (!header.has_value()) return header.error();
  }
  EVALCAR_ASSIGN_OR_RETURN(SideFiles sides, find_side_files(files, request));
  for (const SideFile& side : sides.files) report.side_files.push_back(side.name);
  report.left_out = std::move(sides.left_out);
  EVALCAR_RETURN_IF_ERROR(check_free_space(files, output, report.tensor_bytes));
  return report;
}

Result<MergeReport> merge_completed(FileSystem& files, const MergeRequest& request) {
  EVALCAR_ASSIGN_OR_RETURN(MergeReport report, plan_completed(files, request));
  EVALCAR_ASSIGN_OR_RETURN(const std::string output, resolve_output(files, request.output_dir));
  const Plan& plan = request.plans[0];

  std::vector<PlanReader> readers;
  MergeSource source{&plan, {}, {}, request.dtype, request.cancelled};
  if (request.weights.empty()) source.weights.resize(request.plans.size(), 1.0);
  if (!request.weights.empty()) source.weights = in_range(request.weights);
  for (const Plan& each : request.plans) {
    EVALCAR_ASSIGN_OR_RETURN(PlanReader reader, PlanReader::open(files, each));
    readers.push_back(std::move(reader));
  }
  for (const PlanReader& reader : readers) source.readers.push_back(&reader);

  MergeStaging staging(files, output);
  EVALCAR_RETURN_IF_ERROR(staging.make());
  WeightsWriter writer(files, request, source);
  for (const MergedFile& file : report.files) {
    EVALCAR_RETURN_IF_ERROR(writer.write(file, join_path(staging.path(), file.name)));
  }
  for (const PlanReader& reader : readers) {
    EVALCAR_RETURN_IF_ERROR(reader.verify_checksums(request.threads));
    EVALCAR_RETURN_IF_ERROR(reader.verify_unchanged());
  }
  const std::vector<std::string> own_heads = writer.differing_heads();
  EVALCAR_ASSIGN_OR_RETURN(const SideFiles sides, find_side_files(files, request));
  for (const SideFile& side : sides.files) {
    EVALCAR_ASSIGN_OR_RETURN(const SideFileContent content,
                             side_file_content(files, side, request, own_heads));
    const std::string path = join_path(staging.path(), side.name);
    EVALCAR_RETURN_IF_ERROR(make_directories(files, parent_path(path)));
    EVALCAR_RETURN_IF_ERROR(write_synced(files, path, content.text));
    if (parent_path(path) != staging.path())
      EVALCAR_RETURN_IF_ERROR(files.sync_directory(parent_path(path)));
    report.untied = report.untied || content.untied;
    report.still_tied = report.still_tied || content.still_tied;
  }
  if (report.files.size() > 1) {
    EVALCAR_RETURN_IF_ERROR(
        write_synced(files, join_path(staging.path(), kIndexName), index_json(plan, report)));
  }
  EVALCAR_RETURN_IF_ERROR(staging.publish(request.replace_output));
  return report;
}

}  // namespace

Result<MergeReport> plan_merge(const FileSystem& files, const MergeRequest& request) {
  EVALCAR_RETURN_IF_ERROR(check_request(files, request));
  EVALCAR_ASSIGN_OR_RETURN(const auto completed, with_tied_copies(files, request));
  return plan_completed(files, completed ? *completed : request);
}

Result<MergeReport> merge(FileSystem& files, const MergeRequest& request) {
  EVALCAR_RETURN_IF_ERROR(check_request(files, request));
  EVALCAR_ASSIGN_OR_RETURN(const auto completed, with_tied_copies(files, request));
  return merge_completed(files, completed ? *completed : request);
}

}  // namespace evalcar::checkpoint
