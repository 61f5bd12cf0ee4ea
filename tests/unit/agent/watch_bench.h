// A watcher over a file system in memory, with a layout of one file of weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/watch/watcher.h"
#include "tests/unit/agent/fake_notifier.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

namespace evalcar::testing {

using checkpoint::Completeness;
using checkpoint::KindState;
using checkpoint::Layout;
using checkpoint::LayoutReport;
using checkpoint::WeightsKind;
using std::chrono::seconds;
using test::FakeClock;
using test::MemoryFileSystem;
using watch::Sighting;
using watch::Verdict;
using watch::Watcher;

/// A toy layout: `w` holds "whole" or a part of it, `ema/w` likewise; "done" is the writer's end.
inline Result<LayoutReport> inspect(const FileSystem& files, const std::string& dir) {
  if (!files.info(dir).has_value()) return make_error(ErrorCode::kNotFound, dir);
  if (!files.info(dir + "/config.json").has_value()) {
    return make_error(ErrorCode::kUnsupported, dir + ": no layout that is known");
  }
  LayoutReport report;
  report.layout = Layout::kLmmsEngineFsdp2;
  report.writer_done = files.info(dir + "/done").has_value();
  const auto judge = [&](WeightsKind kind, const std::string& file) {
    KindState state;
    state.kind = kind;
    const auto content = read_file(files, dir + "/" + file, 100);
    if (!content.has_value()) {
      const bool folder = files.info(dir + "/ema").has_value() && kind == WeightsKind::kEma;
      state.completeness = folder ? Completeness::kPending : Completeness::kAbsent;
      if (kind == WeightsKind::kRegular) state.completeness = Completeness::kIncomplete;
      state.reason = file + " is not there";
    } else if (!content->starts_with("whole")) {
      state.completeness = Completeness::kIncomplete;
      state.reason = file + " is short";
    } else {
      state.completeness = Completeness::kComplete;
      state.files = {file, "config.json"};
    }
    report.kinds.push_back(state);
  };
  judge(WeightsKind::kRegular, "w.pt");
  judge(WeightsKind::kEma, "ema/w.pt");
  return report;
}

struct Bench {
  FakeClock clock;
  MemoryFileSystem files{clock};
  FakeNotifier notifier;
  Watcher watcher{files, clock, notifier, {.output_dir = "/out"}, inspect};

  void put(const std::string& name, const std::string& content = "whole") {
    clock.advance(seconds(1));
    files.put_file("/out/" + name, content);
    notifier.hints.folders.insert(parent_path("/out/" + name));
    notifier.hints.folders.insert("/out");
  }
  void put_checkpoint(const std::string& name) {
    put(name + "/config.json", "{}");
    put(name + "/w.pt");
  }
  std::vector<Sighting> look() {
    clock.advance(std::chrono::milliseconds(100));
    return watcher.step();
  }
  /// What was told of regular weights, as "step:verdict".
  std::vector<std::pair<std::int64_t, Verdict>> regular(const std::vector<Sighting>& seen) {
    std::vector<std::pair<std::int64_t, Verdict>> out;
    for (const Sighting& s : seen) {
      if (s.kind == WeightsKind::kRegular) out.emplace_back(s.step, s.verdict);
    }
    return out;
  }
};

using Told = std::vector<std::pair<std::int64_t, Verdict>>;

}  // namespace evalcar::testing
