// A configuration file (TOML). What is accepted is shown by --print-config, and that is accepted
// again with the same values.
#include <cstdlib>
#include <string>

#include "agent/config/config.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/evalcar.toml", fuzz::as_text(data, size));
  const auto config = config::load(files, "/evalcar.toml", {});
  if (!config.has_value()) return 0;
  files.put_file("/printed.toml", config::print_effective(*config));
  const auto again = config::load(files, "/printed.toml", {});
  if (!again.has_value() || again->entries.size() != config->entries.size()) std::abort();
  for (std::size_t i = 0; i < config->entries.size(); ++i) {
    if (again->entries[i].literal != config->entries[i].literal) std::abort();
  }
  return 0;
}
