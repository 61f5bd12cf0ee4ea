// The pickle of a shard, in a ZIP whose checksums are right: reaches what fuzz_torch_file, stopped
// by the CRC, seldom does.
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/torch_tensors.h"
#include "tests/unit/checkpoint/torch_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  namespace build = checkpoint::testing;
  const std::string ranks = build::bytes_of<std::int32_t>({0, 1});
  const std::string zip = build::make_zip(build::torch_parts(
      std::string(fuzz::as_text(data, size)),
      {{"0", std::string(24, 'x')}, {"1", ranks}, {"2", std::string(64, 'y')}, {"mesh", ranks}}));
  const build::MemoryFile file(zip);
  const auto read = checkpoint::TorchFile::read(file, "input");
  if (read.has_value()) fuzz::check_tensors(*read, file, zip.size());
  return 0;
}
