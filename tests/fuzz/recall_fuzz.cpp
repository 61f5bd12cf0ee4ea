// What was published, read back into a database that does not know it: four bytes with the length
// of metrics.jsonl, four with that of the results file, both files, and the rest as the samples
// file. Whatever is in them, a line is taken or left with a reason, and taken once.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "agent/publish/logged_lines.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/recall.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"
#include "tests/unit/support/temporary_directory.h"

namespace {

using namespace evalcar;

constexpr const char* kDir = "/out/run/_evalcar";
constexpr const char* kStem = "/results/5/regular/run__checkpoint-5/20261121_090001";

/// An empty database, which is made anew once something was taken into it.
struct Database {
  test::TemporaryDirectory folder;
  test::FakeClock clock;
  RealFileSystem files;
  std::unique_ptr<state::Store> store;
  state::Run run;

  Database() {
    auto opened = state::Store::open(files, clock, folder / "run.db");
    if (!opened.has_value()) std::abort();
    store = *std::move(opened);
    auto ensured = store->ensure_run("run-01234567", "/out/run", 1, 10);
    if (!ensured.has_value()) std::abort();
    run = *std::move(ensured);
  }
};

std::size_t number_at(const std::uint8_t* data) {
  std::size_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) number |= static_cast<std::size_t>(data[i]) << (8 * i);
  return number;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 8;
  if (size < kHeader) return 0;
  const std::string_view rest = fuzz::as_text(data + kHeader, size - kHeader);
  const std::string_view log = rest.substr(0, number_at(data));
  const std::string_view results = rest.substr(log.size()).substr(0, number_at(data + 4));
  const std::string_view samples = rest.substr(log.size() + results.size());
  static auto database = std::make_unique<Database>();
  const test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  const std::string dir = kDir;
  files.put_file(dir + "/metrics.jsonl", log);
  files.put_file(dir + kStem + "_results.json", results);
  files.put_file(dir + kStem + "_samples_docvqa_val.jsonl", samples);

  (void)publish::published_generation(files, dir, "run-01234567");
  const auto lines = std::count(log.begin(), log.end(), '\n');
  const auto recalled = publish::recall_published(files, dir, *database->store, database->run);
  if (!recalled.has_value()) std::abort();
  if (recalled->taken + static_cast<std::int64_t>(recalled->left.size()) > lines) std::abort();
  if (recalled->taken > 0) {
    const auto again = publish::recall_published(files, dir, *database->store, database->run);
    if (!again.has_value() || again->taken != 0) std::abort();
    database = std::make_unique<Database>();
  }
  publish::MetricsLog read(files, dir + "/metrics.jsonl");
  if (!read.refresh().has_value()) std::abort();
  return 0;
}
