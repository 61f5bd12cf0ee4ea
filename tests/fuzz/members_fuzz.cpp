// The list of the checkpoints that an average is of: no name in it leads out of its folder.
#include <cstdlib>
#include <string>

#include "store/checkpoint/averaged.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/lease/members.json", fuzz::as_text(data, size));
  const auto names = checkpoint::read_members(files, "/lease");
  if (!names.has_value()) return 0;
  for (const std::string& name : *names) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
