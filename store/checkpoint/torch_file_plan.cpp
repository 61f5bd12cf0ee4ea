// A torch.save file of one whole state_dict: `pytorch_model*.bin`, `pytorch_model_fsdp.bin`. Its
// tensors are plain ones, strided views of storages; tied ones share theirs.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {
namespace {

/// What a trainer may put beside the tensors of a state_dict. Anything that may hold tensors is not
/// of these.
bool is_number_or_text(PickleKind kind) {
  using enum PickleKind;
  return kind == kNone || kind == kBool || kind == kInteger || kind == kReal || kind == kText;
}

}  // namespace

Status add_torch_file(const FileSystem& files, const Folder& folder, const std::string& name,
                      PlanBudget& budget, Plan& plan) {
  const std::string path = join_path(folder.path, name);
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder, name));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
  EVALCAR_ASSIGN_OR_RETURN(const TorchFile torch_file, TorchFile::read(*file, path));
  const Pickle& pickle = torch_file.pickle;
  if (pickle.kind(pickle.root()) != PickleKind::kDict) {
    return make_error(ErrorCode::kCorruption,
                      path + ": holds no dict of tensors" + torch_file.place());
  }
  budget.allow_description(torch_file.description_bytes());
  budget.allow_parts(identity.size_bytes);
  const std::size_t index = plan.files.size();
  plan.files.push_back({path, identity});
  std::set<std::string> names;
  std::map<std::uint64_t, PlanRecord> records;  // by offset: tied tensors share one
  std::vector<std::string> beside;
  const std::size_t tensors_before = plan.tensors.size();
  const auto not_a_tensor = [&](const std::string& entry) {
    return make_error(ErrorCode::kUnsupported,
                      path + ": entry " + quote_name(entry) +
                          " is not a plain tensor, expected the state_dict of a model" +
                          torch_file.place());
  };
  const auto pairs = pickle.items(pickle.root());
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle.kind(pairs[i]) != PickleKind::kText) {
      return make_error(ErrorCode::kCorruption,
                        path + ": a key that is not text" + torch_file.place());
    }
    TensorPlan tensor;
    tensor.name = pickle.text(pairs[i]);
    if (!names.insert(tensor.name).second) {
      return torch_file.corrupt(tensor.name, "is in the file twice");
    }
    const bool is_extra = is_extra_state(tensor.name);
    if (is_extra || is_number_or_text(pickle.kind(pairs[i + 1]))) {
      budget.take_found(0);
      if (budget.is_spent()) return torch_file.corrupt(tensor.name, PlanBudget::kTooMuch);
      (is_extra ? plan.extra_states : beside).push_back(std::move(tensor.name));
      continue;
    }
    if (!is_plain_tensor(pickle, pairs[i + 1])) return not_a_tensor(tensor.name);
    EVALCAR_ASSIGN_OR_RETURN(const StoredTensor stored,
                             read_stored_tensor(torch_file, pairs[i + 1], tensor.name));
    tensor.dtype = stored.dtype;
    tensor.shape = stored.size;
    if (tensor.elements() > 0) {
      tensor.pieces.push_back(Piece{index, stored.file_offset,
                                    std::vector<std::int64_t>(stored.size.size(), 0), stored.size,
                                    stored.stride});
      if (torch_file.zip.has_checksums()) {
        records.emplace(stored.record.offset, PlanRecord{index, stored.record.offset,
                                                         stored.record.size, stored.record.crc32});
      }
    }
    budget.take_whole(tensor);
    if (budget.is_spent()) return torch_file.corrupt(tensor.name, PlanBudget::kTooMuch);
    plan.tensors.push_back(std::move(tensor));
  }
  if (!beside.empty() && plan.tensors.size() == tensors_before) return not_a_tensor(beside.front());
  EVALCAR_RETURN_IF_ERROR(check_unchanged(*file, identity, path));
  for (std::string& entry : beside) plan.left_out.push_back(std::move(entry));
  std::ranges::sort(plan.left_out);
  for (const auto& [offset, record] : records) plan.records.push_back(record);
  return {};
}

}  // namespace evalcar::checkpoint
