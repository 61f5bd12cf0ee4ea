// A file of torch.save (ZIP, data.pkl, tensors): it is refused, or what its tensors name lies
// inside it.
#include <cstdlib>

#include "store/checkpoint/torch_tensor.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const auto file = checkpoint::TorchFile::read(fuzz::BytesFile(data, size), "input");
  if (!file.has_value()) return 0;
  const auto& pickle = file.value().pickle;
  if (pickle.kind(pickle.root()) != checkpoint::PickleKind::kDict) return 0;
  for (const auto node : pickle.items(pickle.root())) {
    if (!checkpoint::is_plain_tensor(pickle, node)) continue;
    const auto tensor = checkpoint::read_stored_tensor(file.value(), node, "tensor");
    if (tensor.has_value() && tensor.value().file_offset > size) std::abort();
  }
  return 0;
}
