#include "agent/publish/live_board.h"

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

std::vector<LiveDirectory> LiveBoard::directories() const {
  return state_.with([](const State& state) {
    std::vector<LiveDirectory> all;
    for (const auto& [path, directory] : state.directories) all.push_back(directory);
    return all;
  });
}

void LiveBoard::on_news(std::function<void()> call) {
  state_.with([&call](State& state) { state.on_news = std::move(call); });
}

}  // namespace evalcar::publish
