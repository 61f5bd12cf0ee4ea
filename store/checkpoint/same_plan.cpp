#include "store/checkpoint/same_plan.h"

#include <algorithm>
#include <memory>

namespace evalcar::checkpoint {
namespace {

bool is_same(const TensorPlan& a, const TensorPlan& b);

bool is_same(const Piece& a, const Piece& b) {
  return a.file == b.file && a.file_offset == b.file_offset && a.start == b.start &&
         a.size == b.size && a.stride_elements == b.stride_elements;
}

bool is_same(const LowRankUpdate& a, const LowRankUpdate& b);

bool is_same(const std::vector<TensorPlan>& a, const std::vector<TensorPlan>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return is_same(x, y); });
}

template <typename T>
bool is_same(const std::shared_ptr<const T>& a, const std::shared_ptr<const T>& b) {
  return a == b || (a != nullptr && b != nullptr && is_same(*a, *b));
}

bool is_same(const LowRankUpdate& a, const LowRankUpdate& b) {
  return is_same(a.a, b.a) && is_same(a.b, b.b) && a.scale == b.scale &&
         a.transposed == b.transposed && a.round_update == b.round_update &&
         is_same(a.before, b.before);
}

bool is_same(const TensorPlan& a, const TensorPlan& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.tied_to == b.tied_to &&
         a.stored_dtype == b.stored_dtype &&
         std::ranges::equal(a.pieces, b.pieces,
                            [](const auto& x, const auto& y) { return is_same(x, y); }) &&
         is_same(a.update, b.update) && is_same(a.mean_of, b.mean_of);
}

bool is_same(const PlanFile& a, const PlanFile& b) {
  return a.path == b.path && a.identity.same_content_identity(b.identity) &&
         a.identity.ctime_ns == b.identity.ctime_ns;
}

bool is_same(const PlanRecord& a, const PlanRecord& b) {
  return a.file == b.file && a.offset == b.offset && a.size == b.size && a.crc32 == b.crc32;
}

}  // namespace

bool is_same_plan(const Plan& a, const Plan& b) {
  const auto same = [](const auto& x, const auto& y) { return is_same(x, y); };
  return a.layout == b.layout && a.kind == b.kind && a.gives_up_tie == b.gives_up_tie &&
         std::ranges::equal(a.files, b.files, same) && is_same(a.tensors, b.tensors) &&
         std::ranges::equal(a.records, b.records, same);
}

}  // namespace evalcar::checkpoint
