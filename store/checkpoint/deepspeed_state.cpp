#include "store/checkpoint/deepspeed_state.h"

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {

Result<DeepspeedState> DeepspeedStates::open(const std::string& name) {
  const std::string path = join_path(folder_.path, name);
  EVALCAR_ASSIGN_OR_RETURN(const auto file,
                           open_inside(files_, parent_path(path), base_name(path)));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
  EVALCAR_ASSIGN_OR_RETURN(TorchFile torch_file,
                           TorchFile::read(*file, path, PickleNames::kDeepspeed));
  EVALCAR_RETURN_IF_ERROR(check_unchanged(*file, identity, path));
  budget_.allow_description(torch_file.description_bytes());
  budget_.allow_parts(identity.size_bytes);
  plan_.files.push_back({path, identity});
  return DeepspeedState{plan_.files.size() - 1, std::move(torch_file)};
}

Result<StoredTensor> DeepspeedStates::stored(const DeepspeedState& state, Pickle::NodeId node,
                                             const std::string& name) {
  const TorchFile& file = state.torch_file;
  if (!is_plain_tensor(file.pickle, node)) return file.corrupt(name, "is not a plain tensor");
  EVALCAR_ASSIGN_OR_RETURN(StoredTensor tensor, read_stored_tensor(file, node, name));
  if (file.zip.has_checksums() && checked_elements(tensor.size) != 0U) {
    records_.emplace(
        std::pair(state.index, tensor.record.offset),
        PlanRecord{state.index, tensor.record.offset, tensor.record.size, tensor.record.crc32});
  }
  return tensor;
}

void DeepspeedStates::add_records() {
  for (const auto& [place, record] : records_) plan_.records.push_back(record);
}

bool is_sequence(const Pickle& pickle, Pickle::NodeId node) {
  return pickle.kind(node) == PickleKind::kList || pickle.kind(node) == PickleKind::kTuple;
}

}  // namespace evalcar::checkpoint
