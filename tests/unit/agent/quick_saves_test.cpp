// Saves of lmms-engine's ranks in place of one another, so soon that no pause tells them apart.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "agent/watch/watcher.h"
#include "tests/unit/agent/watch_bench.h"

using namespace evalcar;
using namespace evalcar::watch;
using namespace evalcar::testing;

namespace {

/// Two ranks' shards are whole if they say so; nothing is complete without the configuration.
Result<LayoutReport> inspect_ranks(const FileSystem& files, const std::string& dir) {
  LayoutReport report;
  report.layout = Layout::kLmmsEngineFsdp2;
  KindState state;
  state.completeness = Completeness::kComplete;
  for (const char* name : {"pytorch_model_fsdp_0/model_world_size_2_rank_0.pt",
                           "pytorch_model_fsdp_0/model_world_size_2_rank_1.pt", "config.json"}) {
    const auto content = read_file(files, dir + "/" + name, 100);
    if (content.has_value()) state.files.emplace_back(name);
    if (content.has_value() && content->starts_with("whole")) continue;
    state.completeness = Completeness::kIncomplete;
    state.reason = std::string(name) + " is short";
  }
  report.kinds.push_back(state);
  return report;
}

struct Ranks : Bench {
  explicit Ranks(std::uint64_t file_system = 0xEF53) { files.mount("/out", 8, file_system); }
  Watcher quick{files, clock, notifier, {.output_dir = "/out"}, inspect_ranks};

  void write(const std::string& name, const std::string& save) {
    put("checkpoint-5/" + name, "whole " + save);
  }
  void write_model(int rank, const std::string& save) {
    write("pytorch_model_fsdp_0/model_world_size_2_rank_" + std::to_string(rank) + ".pt", save);
  }
  void write_last(int rank, const std::string& save) {
    write("dataloader_state/dataloader_state_world_size_2_rank_" + std::to_string(rank) + ".pt",
          save);
  }
  Told see(std::chrono::milliseconds after = std::chrono::milliseconds(100)) {
    clock.advance(after);
    return regular(quick.step());
  }
  /// The first look comes when rank 0 has begun the second save, and rank 1 has not.
  void begin_in_the_second_save() {
    write_model(0, "1");
    write_model(1, "1");
    write_last(0, "1");
    write_last(1, "1");
    write("config.json", "1");
    write_model(0, "2");
    CHECK(see() == Told{{5, Verdict::kWaiting}});
  }
};

}  // namespace

TEST_CASE("two quick saves whose middle was seen are complete when both ranks have ended") {
  Ranks ranks;
  ranks.begin_in_the_second_save();

  ranks.write_model(1, "2");
  ranks.write("config.json", "2");
  CHECK(ranks.see() == Told{{5, Verdict::kWaiting}});
  ranks.write_last(0, "2");
  ranks.write_last(1, "2");
  CHECK(ranks.see() == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a rank that had ended before the other one wrote again is of the save before") {
  Ranks ranks;
  ranks.begin_in_the_second_save();
  ranks.write_last(0, "2");

  ranks.write_model(1, "2 or 3");  // only the files' times could tell, and they do not
  ranks.write("config.json", "3");
  ranks.write_last(1, "2 or 3");

  CHECK(ranks.see() == Told{{5, Verdict::kWaiting}});
  CHECK(ranks.see(seconds(60)) == Told{{5, Verdict::kTorn}});
}

TEST_CASE("a save over a part of another one is mixed though each rank has ended") {
  Ranks ranks;
  ranks.write_model(0, "1");
  ranks.write_model(1, "1");
  ranks.write_last(0, "1");
  ranks.write_last(1, "1");  // killed before the configuration
  CHECK(ranks.see() == Told{{5, Verdict::kWaiting}});

  ranks.write_model(1, "2");
  ranks.write_last(1, "2");
  ranks.write("config.json", "2");  // killed before rank 0 came to its weights, however that was

  CHECK(ranks.see() == Told{{5, Verdict::kWaiting}});
  CHECK(ranks.see(seconds(60)) == Told{{5, Verdict::kTorn}});
}

TEST_CASE("the times of a file server prove nothing of two quick saves") {
  Ranks ranks(0x6969);
  ranks.begin_in_the_second_save();
  ranks.write_model(1, "2");
  ranks.write("config.json", "2");
  ranks.write_last(0, "2");
  ranks.write_last(1, "2");

  CHECK(ranks.see() == Told{{5, Verdict::kWaiting}});
  CHECK(ranks.see(seconds(60)) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("EMA that a save over another one has not written is not its EMA, seen before or not") {
  const bool seen_before = GENERATE(false, true);
  const std::string rank = "_world_size_1_rank_0.pt";
  Bench bench;
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"},
                  [&](const FileSystem& files, const std::string& dir) {
                    LayoutReport report;
                    report.layout = Layout::kLmmsEngineFsdp2;
                    for (const auto kind : {WeightsKind::kRegular, WeightsKind::kEma}) {
                      const std::string folder = kind == WeightsKind::kEma
                                                     ? "pytorch_ema_model_fsdp_0"
                                                     : "pytorch_model_fsdp_0";
                      KindState state;
                      state.kind = kind;
                      state.completeness = Completeness::kComplete;
                      state.files = {folder + "/model" + rank, "config.json"};
                      if (!files.info(dir + "/" + state.files[0]).has_value()) {
                        state.completeness = Completeness::kAbsent;
                      }
                      report.kinds.push_back(state);
                    }
                    return report;
                  });
  const auto save = [&](bool ema) {
    bench.put("checkpoint-5/pytorch_model_fsdp_0/model" + rank);
    if (ema) bench.put("checkpoint-5/pytorch_ema_model_fsdp_0/model" + rank);
    for (const std::string state : {"optimizer", "extra_state", "dataloader_state"}) {
      bench.put("checkpoint-5/" + state + "/" + state + rank);
    }
    bench.put("checkpoint-5/config.json", "{}");
  };
  const auto look = [&](seconds after = seconds(1)) {
    bench.clock.advance(after);
    std::map<WeightsKind, Verdict> told;
    for (const Sighting& seen : watcher.step()) told[seen.kind] = seen.verdict;
    return told;
  };
  const std::map both = {std::pair(WeightsKind::kRegular, Verdict::kComplete),
                         std::pair(WeightsKind::kEma, Verdict::kComplete)};
  const std::map regular_alone = {std::pair(WeightsKind::kRegular, Verdict::kComplete),
                                  std::pair(WeightsKind::kEma, Verdict::kNotStarted)};

  save(true);
  if (seen_before) CHECK(look() == both);
  bench.clock.advance(seconds(7200));
  save(false);

  CHECK(look() == regular_alone);
  CHECK(look(seconds(60)).empty());
  bench.put("checkpoint-5/pytorch_ema_model_fsdp_0/model" + rank);             // touched
  CHECK(look() == std::map{std::pair(WeightsKind::kEma, Verdict::kWaiting)});  // behind the rest
  const std::map ema_alone = {std::pair(WeightsKind::kEma, Verdict::kComplete)};
  CHECK(look(seconds(60)) == (seen_before ? both : ema_alone));  // a rewrite, and what is beside it
}
