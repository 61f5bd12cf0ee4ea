// What must hold of the tensors of a torch.save file, whatever is in it.
#pragma once

#include <cstdlib>

#include "store/checkpoint/dtensor.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::fuzz {

/// Aborts unless the tensor's last element ends within the file.
inline void check_inside(const checkpoint::StoredTensor& tensor, std::size_t file_bytes) {
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < tensor.size.size(); ++d) {
    if (tensor.size[d] < 0 || tensor.stride[d] < 0) std::abort();
    if (tensor.size[d] == 0) return;
    last += static_cast<std::uint64_t>(tensor.size[d] - 1) *
            static_cast<std::uint64_t>(tensor.stride[d]);
  }
  if (tensor.file_offset + (last + 1) * checkpoint::dtype_size(tensor.dtype) > file_bytes) {
    std::abort();
  }
}

inline void check_box(const checkpoint::StoredDTensor& tensor) {
  if (!tensor.mesh.holds_this_rank) return;
  const auto box =
      checkpoint::local_box(tensor.shape, tensor.mesh, tensor.placements, tensor.shard_order);
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (box.start[d] < 0 || box.size[d] < 0 || box.start[d] + box.size[d] > tensor.shape[d]) {
      std::abort();
    }
  }
}

/// Reads every tensor and DTensor of the file.
inline void check_tensors(const checkpoint::TorchFile& file, const ReadableFile& bytes,
                          std::size_t file_bytes) {
  const auto& pickle = file.pickle;
  if (pickle.kind(pickle.root()) != checkpoint::PickleKind::kDict) return;
  checkpoint::DTensorReader dtensors(file, bytes, 0, 2);
  for (const auto node : pickle.items(pickle.root())) {
    if (checkpoint::DTensorReader::is_dtensor(pickle, node)) {
      const auto tensor = dtensors.read(node, "tensor");
      if (!tensor.has_value()) continue;
      check_inside(tensor->local, file_bytes);
      check_box(*tensor);
    } else if (checkpoint::is_plain_tensor(pickle, node)) {
      const auto tensor = checkpoint::read_stored_tensor(file, node, "tensor");
      if (tensor.has_value()) check_inside(*tensor, file_bytes);
    }
  }
}

}  // namespace evalcar::fuzz
