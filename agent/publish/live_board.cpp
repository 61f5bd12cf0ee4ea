#include "agent/publish/live_board.h"

#include <algorithm>
#include <set>
#include <utility>

namespace evalcar::publish {

void LiveBoard::tell(LiveDirectory now) {
  // Under the lock: after on_news(nullptr) nobody is called any more.
  state_.with([&now](State& state) {
    const std::string key = now.output_dir;
    state.directories.insert_or_assign(key, std::move(now));
    if (state.on_news) state.on_news();
  });
}

void LiveBoard::keep_only(const std::vector<std::string>& output_dirs) {
  state_.with([&output_dirs](State& state) {
    std::erase_if(state.directories, [&output_dirs](const auto& directory) {
      return std::ranges::find(output_dirs, directory.first) == output_dirs.end();
    });
  });
}

std::vector<LiveDirectory> LiveBoard::directories() const {
  return state_.with([](const State& state) {
    std::vector<LiveDirectory> all;
    for (const auto& [path, directory] : state.directories) all.push_back(directory);
    return all;
  });
}

std::string LiveBoard::hindrance() const {
  std::set<std::string> said;
  std::string all;
  for (const LiveDirectory& directory : directories()) {
    const std::string& one = directory.facts.hindrance;
    if (one.empty() || !said.insert(one).second) continue;
    all += (all.empty() ? "" : "; ") + one;
  }
  return all;
}

void LiveBoard::on_news(std::function<void()> call) {
  state_.with([&call](State& state) { state.on_news = std::move(call); });
}

}  // namespace evalcar::publish
