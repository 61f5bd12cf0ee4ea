// A folder of torch.distributed.checkpoint out of the input: a byte that chooses the metadata's
// name, four with its length, the metadata, and one data file. Whatever is in them, the folder is
// judged, and a plan that is made reads exactly as many bytes as it says, or fails by a checksum.
#include <cstdlib>
#include <string>

#include "store/checkpoint/dcp_metadata.h"
#include "store/checkpoint/plan.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/checkpoint_folder.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

namespace {

using namespace evalcar;

/// What the reader of the metadata promises.
void check_metadata(std::string_view bytes) {
  checkpoint::DcpMetadataReader reader;
  if (!reader.add(std::string(bytes), "input").has_value()) return;
  const auto metadata = reader.finish();
  if (!metadata.has_value()) return;
  for (const checkpoint::DcpFile& file : metadata->files) {
    std::uint64_t position = 0;
    for (const checkpoint::DcpItem& item : file.items) {
      if (item.offset != position) std::abort();
      position += item.length;
    }
    if (position != file.size() || file.name.find('/') != std::string::npos) std::abort();
  }
  for (checkpoint::TensorPlan tensor : metadata->weights) {
    for (const checkpoint::Piece& piece : tensor.pieces) {
      if (piece.file >= metadata->files.size()) std::abort();
    }
    if (!checkpoint::check_tiling(tensor).has_value()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 5;
  if (size < kHeader) return 0;
  const std::size_t stated = data[1] | static_cast<std::size_t>(data[2]) << 8U |
                             static_cast<std::size_t>(data[3]) << 16U |
                             static_cast<std::size_t>(data[4]) << 24U;
  const std::string_view rest = fuzz::as_text(data + kHeader, size - kHeader);
  const std::string_view metadata = rest.substr(0, stated);
  check_metadata(metadata);

  const test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/checkpoint-5/__0_0.distcp", rest.substr(metadata.size()));
  files.put_file(std::string("/checkpoint-5/") + (data[0] % 2 == 0 ? ".metadata" : "__0.metadata"),
                 metadata);
  files.put_file("/checkpoint-5/config.json", "{}");
  fuzz::check_checkpoint(files, "/checkpoint-5", size);
  return 0;
}
