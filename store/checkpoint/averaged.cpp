#include "store/checkpoint/averaged.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kMaxMembersBytes = std::uint64_t{64} << 10U;
constexpr std::size_t kMaxMembers = 1024;
/// Of one member at a time.
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20U;

/// Collects the strings of {"members": [...]}.
class MembersVisitor : public JsonVisitor {
 public:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path != JsonPath{"members", ""} || value.kind != JsonScalar::Kind::kString) {
      return "expected {\"members\": [names]}";
    }
    const bool plain = !value.text.empty() && value.text.size() <= 255 && value.text[0] != '.' &&
                       value.text.find('/') == std::string_view::npos &&
                       value.text.find('\0') == std::string_view::npos;
    if (!plain) return "a member's name is no plain name";
    if (names.size() == kMaxMembers) return "more members than anybody averages";
    if (std::find(names.begin(), names.end(), value.text) != names.end()) return "a member twice";
    names.emplace_back(value.text);
    return {};
  }
  std::string open(const JsonPath& path, bool is_array) override {
    const bool root = path.empty() && !is_array;
    const bool list = path == JsonPath{"members"} && is_array;
    return root || list ? "" : "expected {\"members\": [names]}";
  }
  std::string close(const JsonPath&) override { return {}; }

  std::vector<std::string> names;
};

Error differs(std::size_t plan, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument,
                    "checkpoint " + std::to_string(plan + 1) + " of the average " + what);
}

Status check_same(const Plan& last, const Plan& other, std::size_t position) {
  if (other.tensors.size() != last.tensors.size()) {
    return differs(position, "has " + std::to_string(other.tensors.size()) + " tensors, expected " +
                                 std::to_string(last.tensors.size()));
  }
  for (std::size_t i = 0; i < last.tensors.size(); ++i) {
    const TensorPlan& a = last.tensors[i];
    const TensorPlan& b = other.tensors[i];
    if (is_scaled(a.dtype)) return not_averaged(a);
    if (a.name != b.name) return differs(position, "has no tensor " + quote_name(a.name));
    if (a.dtype == b.dtype && a.shape == b.shape) continue;
    return differs(position, "holds " + quote_name(a.name) + " as " +
                                 std::string(dtype_name(b.dtype)) + " " + shape_text(b.shape) +
                                 ", expected " + std::string(dtype_name(a.dtype)) + " " +
                                 shape_text(a.shape));
  }
  return {};
}

void shift_files(TensorPlan& tensor, std::size_t by);

std::shared_ptr<const LowRankUpdate> shifted(LowRankUpdate update, std::size_t by) {
  shift_files(update.a, by);
  shift_files(update.b, by);
  if (update.before != nullptr) update.before = shifted(*update.before, by);
  return std::make_shared<const LowRankUpdate>(std::move(update));
}

/// Points a tensor of one plan at files that were appended to those of others.
void shift_files(TensorPlan& tensor, std::size_t by) {
  for (Piece& piece : tensor.pieces) piece.file += by;
  if (tensor.update == nullptr) return;
  tensor.update = shifted(*tensor.update, by);
}

}  // namespace

std::string members_json(std::span<const std::string> names) {
  const nlohmann::json list = {{"members", std::vector<std::string>(names.begin(), names.end())}};
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<std::vector<std::string>> read_members(const FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kMembersFile);
  EVALCAR_ASSIGN_OR_RETURN(const std::string text,
                           read_inside(files, Folder{folder, {}}, kMembersFile, kMaxMembersBytes));
  MembersVisitor members;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, path, 2, members));
  if (members.names.empty()) {
    return make_error(ErrorCode::kCorruption, path + ": names no member");
  }
  return std::move(members.names);
}

Error not_averaged(const TensorPlan& tensor) {
  return make_error(ErrorCode::kUnsupported,
                    "tensor " + quote_name(tensor.name) + " is " +
                        std::string(dtype_name(tensor.dtype)) +
                        ", whose values mean nothing without their scales: it cannot be averaged");
}

Result<Plan> mean_of(std::vector<Plan> plans) {
  if (plans.empty()) return make_error(ErrorCode::kInvalidArgument, "an average of nothing");
  const Plan& last = plans.back();
  for (std::size_t p = 0; p + 1 < plans.size(); ++p) {
    EVALCAR_RETURN_IF_ERROR(check_same(last, plans[p], p));
  }
  Plan mean;
  mean.layout = last.layout;
  mean.kind = last.kind;
  mean.world_size = last.world_size;
  mean.extra_states = last.extra_states;
  mean.left_out = last.left_out;
  std::vector<std::vector<TensorPlan>> members(last.tensors.size());
  for (Plan& plan : plans) {
    const std::size_t first = mean.files.size();
    mean.gives_up_tie |= plan.gives_up_tie;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      shift_files(plan.tensors[i], first);
      members[i].push_back(plan.tensors[i]);
    }
    for (PlanRecord record : plan.records) {
      record.file += first;
      mean.records.push_back(record);
    }
    mean.files.insert(mean.files.end(), plan.files.begin(), plan.files.end());
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    TensorPlan tensor;
    tensor.name = last.tensors[i].name;
    tensor.dtype = last.tensors[i].dtype;
    tensor.shape = last.tensors[i].shape;
    const auto& tie = last.tensors[i].tied_to;
    const bool always =
        std::all_of(members[i].begin(), members[i].end(),
                    [&](const TensorPlan& member) { return member.tied_to == tie; });
    if (always) tensor.tied_to = tie;
    tensor.mean_of = std::make_shared<const std::vector<TensorPlan>>(std::move(members[i]));
    mean.tensors.push_back(std::move(tensor));
  }
  return mean;
}

Status read_mean(const TensorPlan& tensor, const Box& box, const BoxReader& read,
                 std::span<std::byte> out) {
  const std::vector<TensorPlan>& members = *tensor.mean_of;
  if (!is_averaged(tensor.dtype)) return read(members.back(), box, out);
  const std::size_t element_bytes = dtype_size(tensor.dtype);
  std::vector<std::byte> values;
  std::vector<double> sum;
  std::size_t done = 0;
  for (const Box& part : row_major_boxes(box, element_bytes, kPartBytes)) {
    const std::size_t elements = part.elements();
    values.resize(elements * element_bytes);
    sum.assign(elements * numbers_per_element(tensor.dtype), kEmptySum);
    for (const TensorPlan& member : members) {
      EVALCAR_RETURN_IF_ERROR(read(member, part, values));
      accumulate(tensor.dtype, values, 1.0, sum);
    }
    write_mean(sum, static_cast<double>(members.size()), tensor.dtype,
               out.subspan(done, values.size()));
    done += values.size();
  }
  return {};
}

}  // namespace evalcar::checkpoint
