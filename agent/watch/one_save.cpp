#include "agent/watch/one_save.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace evalcar::watch {
namespace {

using checkpoint::Layout;
using checkpoint::WeightsKind;
using std::chrono::milliseconds;

constexpr milliseconds kLongestSavePause{5'000};
constexpr int kPausesToSettle = 4;

bool written_again(const state::FileIdentity& before, const state::FileIdentity& now) {
  return before.inode != now.inode || now.size_bytes < before.size_bytes ||
         (now.size_bytes == before.size_bytes && now.mtime_ns > before.mtime_ns);
}

/// Files of weights, without what else a trainer saves in files of such names.
bool is_of_the_model(const std::string& path) {
  static constexpr std::array<std::string_view, 9> kOther = {
      "optimizer",        "scheduler",     "scaler",    "sampler",      "extra_state",
      "dataloader_state", "training_args", "rng_state", "random_states"};
  const std::string name = base_name(path);
  return holds_weights(name) && std::ranges::none_of(kOther, [&](std::string_view other) {
           return name.starts_with(other) || path.starts_with(other);
         });
}

/// The time of what is written behind all weights; nullopt if nothing is there.
std::optional<std::int64_t> end_of_save(const FilesSeen& all) {
  std::optional<std::int64_t> end;
  for (const auto& [path, info] : all) {
    if (path != "trainer_state.json" && base_name(path) != ".metadata") continue;
    end = std::max(end.value_or(info.mtime_ns), info.mtime_ns);
  }
  return end;
}

const FileInfo* find_in(const FilesSeen& all, const std::string& path) {
  const auto found = all.find(path);
  return found == all.end() ? nullptr : &found->second;
}

/// "`first` is newer than `second`, which is written behind it", if it is.
std::string doubt_of_order(const FilesSeen& all, const std::string& first,
                           const std::string& second) {
  const FileInfo* before = find_in(all, first);
  const FileInfo* behind = find_in(all, second);
  if (before == nullptr || behind == nullptr || before->mtime_ns <= behind->mtime_ns) return {};
  return first + " is newer than " + second + ", which is written behind it";
}

/// Of one file of weights: what follows it in its save is not older, what it follows not newer.
std::string doubt_of_place(Layout layout, WeightsKind kind, const std::string& path,
                           const FilesSeen& all) {
  std::string doubt = doubt_of_order(all, path, "trainer_state.json");
  if (doubt.empty() && layout == Layout::kDcp) {
    const std::size_t folder = path.size() - base_name(path).size();
    doubt = doubt_of_order(all, path, path.substr(0, folder) + ".metadata");
  }
  if (!doubt.empty() || layout != Layout::kLmmsEngineFsdp2) return doubt;
  // Rank 0 does not wait for the others before it writes the configuration.
  if (path.ends_with("_rank_0.pt")) doubt = doubt_of_order(all, path, "config.json");
  if (doubt.empty() && kind == WeightsKind::kEma) {
    const std::string regular = checkpoint::LayoutOptions().shard_folder;
    doubt = doubt_of_order(all, join_path(regular, base_name(path)), path);
  }
  return doubt;
}

/// When the rank of one of lmms-engine's files wrote its last one.
std::int64_t end_of_rank(const WatchedFile& file, const FilesSeen& all) {
  const std::string name = base_name(file.relative);
  const std::string rank = name.substr(std::min(name.find("_world_size_"), name.size()));
  std::int64_t end = file.identity.mtime_ns;
  for (const std::string state : {"optimizer", "extra_state", "dataloader_state"}) {
    const FileInfo* info = find_in(all, join_path(state, state + rank));
    if (info != nullptr) end = std::max(end, info->mtime_ns);
  }
  return end;
}

/// A rank had ended more than `longest` before the weights of another one did.
std::string doubt_of_pauses(const std::vector<WatchedFile>& files, const FilesSeen& all,
                            milliseconds longest) {
  const WatchedFile* first = nullptr;  // whose rank ended first
  const WatchedFile* last = nullptr;
  std::int64_t first_ns = 0;
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) continue;
    const std::int64_t end_ns = end_of_rank(file, all);
    if (first == nullptr || end_ns < first_ns) first = &file, first_ns = end_ns;
    if (last == nullptr || file.identity.mtime_ns > last->identity.mtime_ns) last = &file;
  }
  if (first == nullptr) return {};
  const std::chrono::nanoseconds pause(last->identity.mtime_ns - first_ns);
  if (pause <= longest) return {};
  return last->relative + " was written " +
         std::to_string(std::chrono::duration_cast<milliseconds>(pause).count() / 1000) +
         " s after the rank of " + first->relative + " had ended";
}

}  // namespace

void RewriteWatch::remember(const KnownContent& complete) {
  for (const state::FileIdentity& file : complete.files) {
    if (is_of_the_model(file.path)) last_.try_emplace(file.path, file);
  }
}

void RewriteWatch::see(const FilesSeen& now, milliseconds longest_pause) {
  Identities weights;
  std::optional<std::int64_t> rewritten_ns;
  for (const auto& [path, info] : now) {
    if (!is_of_the_model(path)) continue;
    const state::FileIdentity file{path, info.inode, info.size_bytes, info.mtime_ns};
    weights.emplace(path, file);
    const auto before = last_.find(path);
    if (before == last_.end() || !written_again(before->second, file)) continue;
    // One that the rewrite which is known has changed is changed by the next one.
    if (!older_.files.empty() && contains_file(older_, before->second)) continue;
    rewritten_ns =
        std::max(rewritten_ns.value_or(before->second.mtime_ns), before->second.mtime_ns);
  }
  if (rewritten_ns.has_value()) {
    const std::int64_t newest_ns = *rewritten_ns + std::chrono::nanoseconds(longest_pause).count();
    older_.files.clear();
    for (const auto& [path, file] : last_) {
      const bool after_the_end = last_end_ns_.has_value() && file.mtime_ns > *last_end_ns_;
      if (file.mtime_ns <= newest_ns && !after_the_end) older_.files.push_back(file);
    }
  }
  for (auto& [path, file] : weights) last_.insert_or_assign(path, std::move(file));
  last_end_ns_ = end_of_save(now);
}

std::string RewriteWatch::doubt_of_one_save(const KnownContent& content) const {
  for (const state::FileIdentity& file : content.files) {
    if (!holds_weights(file.path) || !contains_file(older_, file)) continue;
    return file.path + " was there before others were written again";
  }
  return {};
}

milliseconds longest_pause_of_a_save(milliseconds settle_time) {
  return std::min(kLongestSavePause, settle_time / kPausesToSettle);
}

bool ends_the_save(Layout layout, const KnownContent& content, const FilesSeen& all,
                   bool weights_alone) {
  std::optional<std::int64_t> end = end_of_save(all);
  const FileInfo* config = find_in(all, "config.json");
  if (!end.has_value() && layout == Layout::kLmmsEngineFsdp2 && config != nullptr) {
    end = config->mtime_ns;
  }
  if (!end.has_value()) return false;
  return std::ranges::none_of(content.files, [&](const state::FileIdentity& file) {
    return file.mtime_ns > *end && (!weights_alone || holds_weights(file.path));
  });
}

std::string doubt_of_one_save(Layout layout, WeightsKind kind,
                              const std::vector<WatchedFile>& files, const FilesSeen& all,
                              milliseconds longest_pause) {
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) continue;
    std::string doubt = doubt_of_place(layout, kind, file.relative, all);
    if (!doubt.empty()) return doubt;
  }
  if (layout != Layout::kLmmsEngineFsdp2) return {};
  return doubt_of_pauses(files, all, longest_pause);
}

}  // namespace evalcar::watch
