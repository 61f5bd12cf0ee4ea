// A file of torch.save: it is refused, or what its tensors name lies inside it.
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/torch_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const fuzz::BytesFile bytes(data, size);
  const auto file = checkpoint::TorchFile::read(bytes, "input");
  if (file.has_value()) fuzz::check_tensors(*file, bytes, size);
  return 0;
}
