#include "agent/watch/one_save.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace evalcar::watch {
namespace {

using checkpoint::Layout;
using checkpoint::WeightsKind;
using std::chrono::milliseconds;

constexpr milliseconds kLongestSavePause{5'000};
constexpr int kPausesToSettle = 4;

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

/// What the rank of one of lmms-engine's weights writes behind them, in this order; null: not
/// there.
std::array<const FileInfo*, 3> behind_weights(const std::string& weights, const FilesSeen& all) {
  const std::string name = base_name(weights);
  const std::string rank = name.substr(std::min(name.find("_world_size_"), name.size()));
  std::array<const FileInfo*, 3> behind{};
  std::ranges::transform(
      std::array<std::string, 3>{"optimizer", "extra_state", "dataloader_state"}, behind.begin(),
      [&](const std::string& state) { return find_in(all, join_path(state, state + rank)); });
  return behind;
}

/// When the rank of one of lmms-engine's files wrote its last one, of those that count.
template <typename Counts>
std::int64_t end_of_rank(const WatchedFile& file, const FilesSeen& all, const Counts& counts) {
  std::int64_t end = file.identity.mtime_ns;
  for (const FileInfo* const info : behind_weights(file.relative, all)) {
    if (info != nullptr && counts(*info)) end = std::max(end, info->mtime_ns);
  }
  return end;
}

bool counts_always(const FileInfo&) { return true; }

/// A rank had ended more than `longest` before the weights of another one did.
std::string doubt_of_pauses(const std::vector<WatchedFile>& files, const FilesSeen& all,
                            milliseconds longest) {
  const WatchedFile* first = nullptr;  // whose rank ended first
  const WatchedFile* last = nullptr;
  std::int64_t first_ns = 0;
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) continue;
    const std::int64_t end_ns = end_of_rank(file, all, counts_always);
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

// A copy that keeps times sets them, and the kernel notes when.
bool has_own_time(const FileInfo& info) { return info.mtime_ns == info.ctime_ns; }

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

/// A rank was at work from its weights to the last file that it wrote behind them. That one is of
/// its last save, or of one that was killed later on; and so are the weights, if they are older:
/// each save writes them first. Where all have a moment in common, it is the same save.
bool ranks_saved_together(Layout layout, const std::vector<WatchedFile>& files,
                          const FilesSeen& all, milliseconds longest_pause) {
  if (layout != Layout::kLmmsEngineFsdp2) return false;
  constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_weights_ns = kNever;
  std::int64_t last_weights_ns = 0;
  std::int64_t first_end_ns = kNever;
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) continue;
    first_weights_ns = std::min(first_weights_ns, file.identity.mtime_ns);
    last_weights_ns = std::max(last_weights_ns, file.identity.mtime_ns);
    first_end_ns = std::min(first_end_ns, end_of_rank(file, all, has_own_time));
  }
  if (first_end_ns == kNever) return false;
  // Times of files are those of the kernel's last tick: equal ones have no order.
  return last_weights_ns < first_end_ns &&
         std::chrono::nanoseconds(last_weights_ns - first_weights_ns) <= longest_pause;
}

std::string doubt_by_order(Layout layout, WeightsKind kind, const std::vector<WatchedFile>& files,
                           const FilesSeen& all, milliseconds longest_pause) {
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) continue;
    std::string doubt = doubt_of_place(layout, kind, file.relative, all);
    if (!doubt.empty()) return doubt;
  }
  if (layout != Layout::kLmmsEngineFsdp2) return {};
  return doubt_of_pauses(files, all, longest_pause);
}

std::string why_ema_was_left(Layout layout, WeightsKind kind, const std::vector<WatchedFile>& files,
                             const FilesSeen& all) {
  if (layout != Layout::kLmmsEngineFsdp2 || kind != WeightsKind::kEma) return {};
  std::string why;
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) continue;
    const std::string regular =
        join_path(checkpoint::LayoutOptions().shard_folder, base_name(file.relative));
    const FileInfo* before = find_in(all, regular);
    if (before == nullptr || file.identity.mtime_ns >= before->mtime_ns) return {};
    for (const FileInfo* const behind : behind_weights(file.relative, all)) {
      if (behind == nullptr || behind->mtime_ns < before->mtime_ns) return {};
      before = behind;
    }
    if (why.empty()) why = file.relative + " is older than " + regular;
  }
  if (why.empty()) return {};
  return "this save has written no EMA: " + why +
         ", whose rank has saved all else since; if they belong together, touch the EMA's files";
}

}  // namespace evalcar::watch
