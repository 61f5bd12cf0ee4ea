// A safetensors file: it is refused, or its tensors lie inside it without overlapping.
#include <cstdlib>

#include "store/checkpoint/safetensors.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const auto file = checkpoint::read_safetensors(fuzz::BytesFile(data, size), "input");
  if (file.has_value()) {
    std::uint64_t end = 0;
    for (const auto& tensor : file.value().tensors) {
      if (tensor.begin < end || tensor.end < tensor.begin) std::abort();
      end = tensor.end;
    }
    if (file.value().data_offset + end > size) std::abort();
  }
  (void)checkpoint::parse_safetensors_index(fuzz::as_text(data, size), "input");
  return 0;
}
