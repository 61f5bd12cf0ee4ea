#include "store/checkpoint/tied_copies.h"

#include <string>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/merge_side_files.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"
#include "store/checkpoint/tie_config.h"
#include "store/checkpoint/tied_heads.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kComparedAtOnce = std::uint64_t{1} << 20U;
/// Of heads and embeddings: models have a few; of more each is taken for one of its own.
constexpr std::size_t kMostPairs = 100;

struct Tensors {
  std::vector<std::size_t> heads;
  std::vector<std::size_t> embeddings;
  std::vector<std::string_view> names;
};

Tensors look_at(const Plan& plan) {
  Tensors found;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const std::string& name = plan.tensors[i].name;
    found.names.push_back(name);
    if (may_be_output_head(name)) found.heads.push_back(i);
    if (may_be_tied_embedding(name)) found.embeddings.push_back(i);
  }
  return found;
}

/// Whether a head whose tie can be given up differs from every embedding.
Result<bool> has_own_head(const FileSystem& files, const Plan& plan, const Tensors& tensors,
                          const TiedHeads& ties) {
  for (const std::size_t head : tensors.heads) {
    if (ties.tie_of(plan.tensors[head].name) != HeadTie::kGivenUp) continue;
    if (tensors.heads.size() * tensors.embeddings.size() > kMostPairs) return true;
    bool equal = false;
    for (const std::size_t embedding : tensors.embeddings) {
      EVALCAR_ASSIGN_OR_RETURN(equal, are_equal(files, plan, embedding, head));
      if (equal) break;
    }
    if (!equal) return true;
  }
  return false;
}

}  // namespace

Result<bool> are_equal(const FileSystem& files, const Plan& plan, std::size_t one,
                       std::size_t other) {
  const TensorPlan& first = plan.tensors[one];
  const TensorPlan& second = plan.tensors[other];
  if (first.shape != second.shape || first.dtype != second.dtype) return false;
  EVALCAR_ASSIGN_OR_RETURN(const PlanReader reader, PlanReader::open(files, plan));
  std::vector<std::byte> bytes;
  std::vector<std::byte> others;
  for (const Box& box : row_major_boxes(first, kComparedAtOnce)) {
    bytes.resize(box.elements() * dtype_size(first.dtype));
    others.resize(bytes.size());
    EVALCAR_RETURN_IF_ERROR(reader.read_box(one, box, bytes));
    EVALCAR_RETURN_IF_ERROR(reader.read_box(other, box, others));
    if (bytes != others) return false;
  }
  return true;
}

Result<std::optional<MergeRequest>> with_tied_copies(const FileSystem& files,
                                                     const MergeRequest& request) {
  const Tensors tensors = look_at(request.plans[0]);
  if (tensors.heads.empty() || tensors.embeddings.empty()) return std::optional<MergeRequest>();
  EVALCAR_ASSIGN_OR_RETURN(const auto config, read_tie_config(files, request));
  if (!config) return std::optional<MergeRequest>();
  const TiedHeads ties(*config, tensors.names);
  const std::vector<TiedName> missing = ties.missing();
  if (missing.empty()) return std::optional<MergeRequest>();
  bool own_head = false;
  for (const Plan& plan : request.plans) {
    EVALCAR_ASSIGN_OR_RETURN(own_head, has_own_head(files, plan, tensors, ties));
    if (own_head) break;
  }
  if (!own_head) return std::optional<MergeRequest>();
  MergeRequest completed = request;
  for (Plan& plan : completed.plans) {
    for (const TiedName& copy : missing) {
      if (!config->flags_of(copy.name).may_tie()) continue;
      TensorPlan tensor = plan.tensors[copy.source];
      tensor.name = copy.name;
      tensor.tied_to.reset();
      plan.tensors.push_back(std::move(tensor));
    }
    EVALCAR_RETURN_IF_ERROR(settle_names(plan));
    find_ties(plan);
  }
  return std::optional(std::move(completed));
}

}  // namespace evalcar::checkpoint
