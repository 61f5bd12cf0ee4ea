#include "agent/watch/rewrite_watch.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "store/base/hash.h"

namespace evalcar::watch {
namespace {

using std::chrono::milliseconds;

constexpr int kTailsPerLook = 64;
constexpr std::size_t kTailBytes = 4096;

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

}  // namespace

/// The time of what is written behind all weights; nullopt if nothing is there.
std::optional<std::int64_t> end_of_save(const FilesSeen& all) {
  std::optional<std::int64_t> end;
  for (const auto& [path, info] : all) {
    if (path != "trainer_state.json" && base_name(path) != ".metadata") continue;
    end = std::max(end.value_or(info.mtime_ns), info.mtime_ns);
  }
  return end;
}

std::optional<std::uint64_t> hash_of_tail(const FileSystem& files, const std::string& path,
                                          std::uint64_t size) {
  const auto file = files.open_readable(path);
  if (!file.has_value()) return std::nullopt;
  std::array<std::byte, kTailBytes> bytes{};
  const std::uint64_t wanted = std::min<std::uint64_t>(size, bytes.size());
  const auto n = (*file)->read_at(size - wanted, std::span(bytes.data(), wanted));
  if (!n.has_value() || *n != wanted) return std::nullopt;
  return xxh3_64(std::span<const std::byte>(bytes.data(), wanted));
}

void RewriteWatch::remember(const KnownContent& complete_before) {
  for (const state::FileIdentity& file : complete_before.files) {
    if (is_of_the_model(file.path)) last_.try_emplace(file.path, file);
  }
  complete(complete_before);
}

void RewriteWatch::complete(const KnownContent& weights) {
  for (const state::FileIdentity& file : weights.files) {
    if (is_of_the_model(file.path)) whole_.insert_or_assign(file.path, file);
  }
}

void RewriteWatch::remember(const state::UnfinishedFolder& earlier) {
  for (const state::FileIdentity& file : earlier.files) last_.insert_or_assign(file.path, file);
  tails_ = earlier.tails;
  older_tails_ = earlier.older_tails;
  older_.files = earlier.older;
  last_end_ns_ = earlier.end_ns;
}

state::UnfinishedFolder RewriteWatch::memory() const {
  state::UnfinishedFolder memory;
  for (const auto& [path, file] : last_) memory.files.push_back(file);
  memory.older = older_.files;
  memory.end_ns = last_end_ns_;
  memory.tails = tails_;
  memory.older_tails = older_tails_;
  return memory;
}

bool RewriteWatch::saw_weights_in(const std::string& folder) const {
  return last_.lower_bound(folder + "/") != last_.lower_bound(folder + "0");  // '0' follows '/'
}

bool RewriteWatch::note_tails(const TailOf& tail_of) {
  int read = 0;
  bool changed = false;
  for (const auto& [path, file] : last_) {
    if (read == kTailsPerLook) break;
    if (file.size_bytes == 0 || tails_.contains(path)) continue;
    ++read;
    const auto tail = tail_of(path, file.size_bytes);
    if (!tail.has_value()) continue;
    tails_[path] = *tail;
    changed = true;
  }
  return changed;
}

bool RewriteWatch::see(const FilesSeen& now, milliseconds longest_pause, const TailOf& tail_of) {
  const auto longer_than_a_save_leaves_it = [&](const state::FileIdentity& before,
                                                const state::FileIdentity& file) {
    if (file.size_bytes <= before.size_bytes) return false;
    const auto whole = whole_.find(before.path);
    if (whole != whole_.end() && whole->second == before) return true;
    const auto known = tails_.find(before.path);
    if (known == tails_.end()) return false;
    const auto tail = tail_of(before.path, before.size_bytes);
    return tail.has_value() && *tail != known->second;
  };
  const Tails tails_before = tails_;
  Identities weights;
  std::optional<std::int64_t> rewritten_ns;
  bool changed = false;
  for (const auto& [path, info] : now) {
    if (!is_of_the_model(path)) continue;
    const state::FileIdentity file{path, info.inode, info.size_bytes, info.mtime_ns};
    weights.emplace(path, file);
    const auto before = last_.find(path);
    if (before != last_.end() && before->second == file) continue;
    changed = true;
    if (before == last_.end()) continue;
    const bool again =
        written_again(before->second, file) || longer_than_a_save_leaves_it(before->second, file);
    tails_.erase(path);
    if (!again) continue;
    // One that the rewrite which is known has changed is changed by the next one.
    if (!older_.files.empty() && contains_file(older_, before->second)) continue;
    rewritten_ns =
        std::max(rewritten_ns.value_or(before->second.mtime_ns), before->second.mtime_ns);
  }
  if (rewritten_ns.has_value()) {
    const std::int64_t newest_ns = *rewritten_ns + std::chrono::nanoseconds(longest_pause).count();
    older_.files.clear();
    older_tails_ = tails_before;
    for (const auto& [path, file] : last_) {
      const bool after_the_end = last_end_ns_.has_value() && file.mtime_ns > *last_end_ns_;
      if (file.mtime_ns <= newest_ns && !after_the_end) older_.files.push_back(file);
    }
  }
  for (auto& [path, file] : weights) last_.insert_or_assign(path, std::move(file));
  const std::optional<std::int64_t> end_ns = end_of_save(now);
  changed |= end_ns != last_end_ns_;
  last_end_ns_ = end_ns;
  return changed;
}

/// What stands now where that file ended. Of the same bytes it may be the same content, put there
/// once more (a copy that was taken up again); where that cannot be asked it is not.
bool RewriteWatch::is_another(const state::FileIdentity& older, const TailOf& tail_of) const {
  if (older.size_bytes == 0) return false;
  const auto known = older_tails_.find(older.path);
  const auto tail = tail_of(older.path, older.size_bytes);
  return known == older_tails_.end() || !tail.has_value() || *tail != known->second;
}

LeftFromBefore RewriteWatch::left_from_before(const KnownContent& content,
                                              const TailOf& tail_of) const {
  LeftFromBefore left;
  bool another = false;
  for (const state::FileIdentity& file : content.files) {
    if (!holds_weights(file.path)) continue;
    if (contains_file(older_, file)) {
      if (left.doubt.empty())
        left.doubt = file.path + " was there before others were written again";
      continue;
    }
    const auto older = std::ranges::find(older_.files, file.path, &state::FileIdentity::path);
    another = another || (older != older_.files.end() && is_another(*older, tail_of));
  }
  left.mixed = another && !left.doubt.empty();
  return left;
}

}  // namespace evalcar::watch
