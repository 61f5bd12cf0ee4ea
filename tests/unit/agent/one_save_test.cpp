#include "agent/watch/one_save.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;
using namespace evalcar::watch;
using evalcar::checkpoint::Layout;
using evalcar::checkpoint::WeightsKind;
using std::chrono::seconds;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

FileInfo written_at(double second, std::uint64_t bytes = 10, std::uint64_t inode = 1) {
  FileInfo info;
  info.type = FileType::kRegular;
  info.inode = inode;
  info.size_bytes = bytes;
  info.mtime_ns = static_cast<std::int64_t>(second * static_cast<double>(kSecond));
  info.ctime_ns = info.mtime_ns;
  return info;
}

/// "" or the doubt about those of `all` that are in `folder`.
std::string doubt(Layout layout, WeightsKind kind, const std::string& folder,
                  const FilesSeen& all) {
  std::vector<WatchedFile> files;
  for (const auto& [path, info] : all) {
    if (parent_path(path) == folder || path == "config.json") files.push_back({path, info});
  }
  return doubt_by_order(layout, kind, files, all, seconds(5));
}

FilesSeen fsdp2() {
  return {{"pytorch_model_fsdp_0/model_world_size_2_rank_0.pt", written_at(1)},
          {"pytorch_model_fsdp_0/model_world_size_2_rank_1.pt", written_at(2)},
          {"pytorch_ema_model_fsdp_0/model_world_size_2_rank_0.pt", written_at(3)},
          {"pytorch_ema_model_fsdp_0/model_world_size_2_rank_1.pt", written_at(6)},
          {"config.json", written_at(4)}};
}

std::string doubt_of_fsdp2(WeightsKind kind, const FilesSeen& all) {
  const bool ema = kind == WeightsKind::kEma;
  return doubt(Layout::kLmmsEngineFsdp2, kind,
               ema ? "pytorch_ema_model_fsdp_0" : "pytorch_model_fsdp_0", all);
}

struct Looks {
  RewriteWatch watch;
  std::map<std::string, std::uint64_t> first_bytes;  ///< what each file begins with
  std::optional<std::uint64_t> tail(const std::string& path, std::uint64_t size) const {
    const auto found = first_bytes.find(path);
    if (found == first_bytes.end()) return std::nullopt;
    return found->second + size;
  }
  RewriteWatch::TailOf tails() const {
    return [this](const std::string& path, std::uint64_t size) { return tail(path, size); };
  }
  /// The doubt after a look that sees these.
  std::string see(const FilesSeen& all) {
    watch.see(all, seconds(5), tails());
    watch.note_tails(tails());
    std::vector<WatchedFile> files;
    for (const auto& [path, info] : all) files.push_back({path, info});
    return watch.left_from_before(content_of(files), tails()).doubt;
  }
};

}  // namespace

TEST_CASE("files of one save in their trainer's order raise no doubt") {
  CHECK(doubt_of_fsdp2(WeightsKind::kRegular, fsdp2()).empty());
  // Rank 0 wrote the configuration before rank 1 was done with its EMA.
  CHECK(doubt_of_fsdp2(WeightsKind::kEma, fsdp2()).empty());
}

TEST_CASE("ranks that were at work at the same moment saved the same, one that had ended did not") {
  const auto together = [](const FilesSeen& all, Layout layout = Layout::kLmmsEngineFsdp2) {
    std::vector<WatchedFile> files;
    for (const auto& [path, info] : all) {
      if (path.starts_with("pytorch_model_fsdp_0/")) files.push_back({path, info});
    }
    return ranks_saved_together(layout, files, all, seconds(5));
  };
  FilesSeen all = {{"pytorch_model_fsdp_0/model_world_size_2_rank_0.pt", written_at(1)},
                   {"pytorch_model_fsdp_0/model_world_size_2_rank_1.pt", written_at(2)},
                   {"optimizer/optimizer_world_size_2_rank_0.pt", written_at(3)}};
  CHECK_FALSE(together(all));  // when rank 1 ended is not known
  all["dataloader_state/dataloader_state_world_size_2_rank_1.pt"] = written_at(4);
  CHECK(together(all));
  CHECK_FALSE(together(all, Layout::kHuggingFace));

  FileInfo copied = written_at(3);
  copied.ctime_ns += kSecond;
  all["optimizer/optimizer_world_size_2_rank_0.pt"] = copied;  // its time was set
  CHECK_FALSE(together(all));
  all["optimizer/optimizer_world_size_2_rank_0.pt"] = written_at(3);
  all["pytorch_model_fsdp_0/model_world_size_2_rank_0.pt"] = written_at(-3.1);  // long before
  CHECK_FALSE(together(all));
  all["pytorch_model_fsdp_0/model_world_size_2_rank_0.pt"] = written_at(1);
  CHECK(together(all));
  all["optimizer/optimizer_world_size_2_rank_0.pt"] = written_at(2);  // in the same tick: unclear
  CHECK_FALSE(together(all));
  all["optimizer/optimizer_world_size_2_rank_0.pt"] = written_at(0.5);  // of a save before
  CHECK_FALSE(together(all));
}

TEST_CASE("EMA that is older than its rank's regular weights was left by another save") {
  FilesSeen all = fsdp2();
  all["pytorch_model_fsdp_0/model_world_size_2_rank_1.pt"] = written_at(6.5);
  CHECK(doubt_of_fsdp2(WeightsKind::kRegular, all).find("was written 5 s after the rank of") !=
        std::string::npos);
  all["pytorch_model_fsdp_0/model_world_size_2_rank_0.pt"] = written_at(2.9);
  CHECK(doubt_of_fsdp2(WeightsKind::kRegular, all).empty());
  CHECK(doubt_of_fsdp2(WeightsKind::kEma, all) ==
        "pytorch_model_fsdp_0/model_world_size_2_rank_1.pt is newer than "
        "pytorch_ema_model_fsdp_0/model_world_size_2_rank_1.pt, which is written behind it");
}

TEST_CASE("EMA older than weights behind which each rank has saved all else is of no such save") {
  FilesSeen all = {{"config.json", written_at(20)}};
  for (const char* rank : {"_world_size_2_rank_0.pt", "_world_size_2_rank_1.pt"}) {
    double second = 10;
    all[std::string("pytorch_ema_model_fsdp_0/model") + rank] = written_at(9);
    all[std::string("pytorch_model_fsdp_0/model") + rank] = written_at(second++);
    for (const std::string state : {"optimizer", "extra_state", "dataloader_state"}) {
      all[join_path(state, state + rank)] = written_at(second++);
    }
  }
  const auto why = [](const FilesSeen& seen, WeightsKind kind = WeightsKind::kEma,
                      Layout layout = Layout::kLmmsEngineFsdp2) {
    std::vector<WatchedFile> files;
    for (const auto& [path, info] : seen) {
      if (path.starts_with("pytorch_ema_model_fsdp_0/")) files.push_back({path, info});
    }
    return why_ema_was_left(layout, kind, files, seen);
  };
  CHECK(why(all).starts_with(
      "this save has written no EMA: pytorch_ema_model_fsdp_0/model_world_size_2_rank_0.pt is "
      "older than pytorch_model_fsdp_0/model_world_size_2_rank_0.pt"));
  CHECK(why(all, WeightsKind::kRegular).empty());
  CHECK(why(all, WeightsKind::kEma, Layout::kDcp).empty());
  CHECK(why(fsdp2()).empty());

  for (const auto& [path, second] : std::map<std::string, double>{
           {"pytorch_ema_model_fsdp_0/model_world_size_2_rank_1.pt", 10.5},  // one rank has it
           {"pytorch_model_fsdp_0/model_world_size_2_rank_0.pt", 11.5},      // begins a save
           {"extra_state/extra_state_world_size_2_rank_1.pt", 10.5},         // a copy, by name
           {"dataloader_state/dataloader_state_world_size_2_rank_0.pt", 5}}) {
    INFO(path);
    FilesSeen other = all;
    other[path] = written_at(second);
    CHECK(why(other).empty());
    other.erase(path);
    CHECK(why(other).empty() == !path.starts_with("pytorch_ema"));  // cannot be told
  }
}

TEST_CASE("a configuration that is older than rank 0's weights was left by another save") {
  FilesSeen all = fsdp2();
  all["config.json"] = written_at(0.5);
  CHECK(doubt_of_fsdp2(WeightsKind::kRegular, all) ==
        "pytorch_model_fsdp_0/model_world_size_2_rank_0.pt is newer than config.json, which is "
        "written behind it");
}

TEST_CASE("ranks that ended far apart may be of two saves") {
  FilesSeen all = fsdp2();
  all["pytorch_model_fsdp_0/model_world_size_2_rank_1.pt"] = written_at(6);
  CHECK(doubt_of_fsdp2(WeightsKind::kRegular, all).empty());
  all["pytorch_model_fsdp_0/model_world_size_2_rank_1.pt"] = written_at(6.1);
  CHECK_FALSE(doubt_of_fsdp2(WeightsKind::kRegular, all).empty());
  // The first rank was still writing its optimizer: it is of the same save.
  all["optimizer/optimizer_world_size_2_rank_0.pt"] = written_at(3);
  CHECK(doubt_of_fsdp2(WeightsKind::kRegular, all).empty());
}

TEST_CASE("trainer_state.json and .metadata are not older than any of the weights") {
  FilesSeen all = {{"model-00001-of-00002.safetensors", written_at(1)},
                   {"model-00002-of-00002.safetensors", written_at(100)},
                   {"trainer_state.json", written_at(101)}};
  const auto hugging_face = [&all] {
    return doubt(Layout::kHuggingFace, WeightsKind::kRegular, ".", all);
  };
  REQUIRE(parent_path("trainer_state.json") == ".");
  CHECK(hugging_face().empty());  // one process writes one file after the other
  all["trainer_state.json"] = written_at(99);
  CHECK(hugging_face() ==
        "model-00002-of-00002.safetensors is newer than trainer_state.json, which is written "
        "behind it");

  FilesSeen dcp = {{"d/__0_0.distcp", written_at(1)},
                   {"d/__1_0.distcp", written_at(20)},
                   {"d/.metadata", written_at(21)}};
  CHECK(doubt(Layout::kDcp, WeightsKind::kRegular, "d", dcp).empty());
  dcp["d/.metadata"] = written_at(19);
  CHECK_FALSE(doubt(Layout::kDcp, WeightsKind::kRegular, "d", dcp).empty());

  const FilesSeen torchtitan = {{"__0_0.distcp", written_at(1)}, {".metadata", written_at(0)}};
  CHECK_FALSE(doubt(Layout::kDcp, WeightsKind::kRegular, ".", torchtitan).empty());
}

TEST_CASE("files that grow or come are no rewrite") {
  Looks looks;
  CHECK(looks.see({{"0.pt", written_at(1)}}).empty());
  CHECK(looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(2, 3)}}).empty());
  CHECK(looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(3, 10)}}).empty());
}

TEST_CASE("a file that is longer with another content before its old end is written again") {
  for (const bool same : {false, true}) {
    Looks looks;
    looks.first_bytes["1.pt"] = 100;
    (void)looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(1, 3)}});
    if (!same) looks.first_bytes["1.pt"] = 200;
    CHECK(looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(60, 10)}}).empty() == same);
    CHECK(looks.watch.memory().tails.size() == 1);
  }
}

TEST_CASE("a file that was written again with what it held is no proof of another save") {
  for (const bool same : {false, true}) {
    Looks looks;
    looks.first_bytes["1.pt"] = 100;
    (void)looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(1, 7)}});  // torn
    (void)looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(60, 2)}});
    if (!same) looks.first_bytes["1.pt"] = 200;
    const FilesSeen whole = {{"0.pt", written_at(1)}, {"1.pt", written_at(61, 10)}};
    CHECK_FALSE(looks.see(whole).empty());  // a doubt in any case

    const KnownContent content =
        content_of({{"0.pt", whole.at("0.pt")}, {"1.pt", whole.at("1.pt")}});
    CHECK(looks.watch.left_from_before(content, looks.tails()).mixed == !same);
    RewriteWatch restarted;
    restarted.remember(looks.watch.memory());
    CHECK(restarted.left_from_before(content, looks.tails()).mixed == !same);
  }
}

TEST_CASE("a file that is shorter, another, or newer in its length is written again") {
  for (const FileInfo& again : {written_at(9, 9), written_at(9, 10, 2), written_at(9)}) {
    Looks looks;
    (void)looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(1)}});
    CHECK(looks.see({{"0.pt", again}, {"1.pt", written_at(1)}}) ==
          "1.pt was there before others were written again");
    CHECK(looks.see({{"0.pt", written_at(10)}, {"1.pt", written_at(10)}}).empty());
  }
}

TEST_CASE("a file of complete weights that is longer was written again, right after them or not") {
  for (const bool complete : {false, true}) {
    Looks looks;
    const FilesSeen first = {{"0.pt", written_at(1)}, {"1.pt", written_at(1)}};
    (void)looks.see(first);
    looks.watch.complete();
    if (complete) {
      looks.watch.complete(content_of({{"0.pt", first.at("0.pt")}, {"1.pt", first.at("1.pt")}}));
    }
    CHECK(looks.see({{"0.pt", written_at(2, 12)}, {"1.pt", written_at(1)}}).empty() != complete);
    (void)looks.see({{"0.pt", written_at(2, 12)}, {"1.pt", written_at(3, 0)}});
    CHECK(looks.see({{"0.pt", written_at(2, 12)}, {"1.pt", written_at(3, 12)}}).empty() ==
          complete);
  }
}

TEST_CASE("a file whose time was put back, or that came anew, is judged by what it is") {
  Looks looks;
  (void)looks.see({{"0.pt", written_at(5)}, {"1.pt", written_at(5)}});
  CHECK(looks.see({{"0.pt", written_at(4)}, {"1.pt", written_at(5)}}).empty());
  (void)looks.see({{"1.pt", written_at(5)}});
  CHECK_FALSE(looks.see({{"0.pt", written_at(20, 10, 2)}, {"1.pt", written_at(5)}}).empty());
}

TEST_CASE("of the weights that two contents have in common, some, none or all are replaced") {
  const auto content = [](double first, double second) {
    return content_of({{"0.pt", written_at(first)}, {"1.pt", written_at(second)}});
  };
  CHECK(weights_replaced(content(1, 1), content(1, 1)) == Replaced::kNone);
  CHECK(weights_replaced(content(1, 1), content(2, 1)) == Replaced::kSome);
  CHECK(weights_replaced(content(1, 1), content(2, 2)) == Replaced::kAll);
  const KnownContent one = content_of({{"0.pt", written_at(1, 10, 7)}});
  CHECK(weights_replaced(one, content(1, 2)) == Replaced::kNone);  // one came, another inode
  CHECK(weights_replaced(content_of({{"2.pt", written_at(1)}}), content(1, 1)) == Replaced::kAll);
}

TEST_CASE("what a second rewrite has not yet replaced is of the first") {
  Looks looks;
  (void)looks.see({{"0.pt", written_at(1)}, {"1.pt", written_at(1)}});
  CHECK_FALSE(looks.see({{"0.pt", written_at(2)}, {"1.pt", written_at(1)}}).empty());
  CHECK(looks.see({{"0.pt", written_at(2)}, {"1.pt", written_at(2)}}).empty());
  CHECK_FALSE(looks.see({{"0.pt", written_at(3)}, {"1.pt", written_at(2)}}).empty());
}

TEST_CASE("a first look in the middle of a rewrite tells by the pause which files are new") {
  Looks looks;
  CHECK(looks.see({{"0.pt", written_at(60)}, {"1.pt", written_at(1)}}).empty());
  CHECK(looks.see({{"0.pt", written_at(60)}, {"1.pt", written_at(61)}}).empty());
}

TEST_CASE("a first look in the middle of a rewrite tells by the end of the save before, too") {
  Looks looks;
  FilesSeen all = {{"0.bin", written_at(4)},
                   {"1.bin", written_at(2)},
                   {"optimizer.pt", written_at(2)},
                   {"trainer_state.json", written_at(3)}};
  CHECK(looks.see(all).empty());
  all["1.bin"] = written_at(5);
  CHECK(looks.see(all).empty());
  all["optimizer.pt"] = written_at(6);  // says nothing of the weights
  CHECK(looks.see(all).empty());
  all["trainer_state.json"] = written_at(7);
  CHECK(looks.see(all).empty());
  all["0.bin"] = written_at(8);
  CHECK_FALSE(looks.see(all).empty());
}

TEST_CASE("a save has ended when what is written last is not older than the rest") {
  FilesSeen all = {{"w.bin", written_at(1)}, {"tokenizer.json", written_at(2)}};
  const auto ends = [&all](Layout layout, bool weights_alone) {
    std::vector<WatchedFile> files;
    for (const char* name : {"w.bin", "tokenizer.json"}) files.push_back({name, all[name]});
    return ends_the_save(layout, content_of(files), all, weights_alone);
  };
  CHECK_FALSE(ends(Layout::kHuggingFace, true));
  all["config.json"] = written_at(3);
  CHECK_FALSE(ends(Layout::kHuggingFace, true));
  CHECK(ends(Layout::kLmmsEngineFsdp2, false));
  all["trainer_state.json"] = written_at(1.5);
  CHECK(ends(Layout::kHuggingFace, true));
  CHECK_FALSE(ends(Layout::kHuggingFace, false));
  all["d/.metadata"] = written_at(2);
  CHECK(ends(Layout::kDcp, false));
}

TEST_CASE("with what was complete before the first look every rewrite is told from its start") {
  Looks looks;
  looks.watch.remember(content_of({{"0.pt", written_at(1)}, {"1.pt", written_at(1)}}));
  CHECK_FALSE(looks.see({{"0.pt", written_at(2)}, {"1.pt", written_at(1)}}).empty());
  CHECK(looks.see({{"0.pt", written_at(2)}, {"1.pt", written_at(3)}}).empty());
  looks.watch.complete();
  CHECK(looks.see({{"0.pt", written_at(2)}, {"1.pt", written_at(3)}}).empty());
  CHECK_FALSE(looks.see({{"0.pt", written_at(4)}, {"1.pt", written_at(3)}}).empty());
}

TEST_CASE("the longest pause without doubt is a part of the settle time") {
  CHECK(longest_pause_of_a_save(seconds(30)) == seconds(5));
  CHECK(longest_pause_of_a_save(seconds(4)) == seconds(1));
}
