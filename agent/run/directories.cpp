#include "agent/run/directories.h"

#include <algorithm>

namespace evalcar::run {
namespace {

constexpr std::size_t kMostServed = 64;  ///< directories that jobs may bring
constexpr std::chrono::seconds kIdle{60};

}  // namespace

Result<OutputDirectory*> Directories::open(const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(auto directory, OutputDirectory::open(around_, settings_, path));
  all_.push_back(std::move(directory));
  return all_.back().get();
}

Result<OutputDirectory*> Directories::open_served(const std::string& path) {
  if (all_.size() < kMostServed) return open(path);
  return make_error(ErrorCode::kUnavailable,
                    path + ": jobs of " + std::to_string(kMostServed) +
                        " other directories were served already; start the server again");
}

void Directories::close_idle(const std::function<bool(const OutputDirectory&)>& is_needed,
                             const std::function<void(const OutputDirectory&)>& before) {
  const MonotonicTime now = around_.clock.monotonic_now();
  std::erase_if(all_, [&](const std::unique_ptr<OutputDirectory>& directory) {
    MonotonicTime& needed_at = needed_at_.try_emplace(directory.get(), now).first->second;
    if (is_needed(*directory)) needed_at = now;
    if (is_needed(*directory) || (now - needed_at < kIdle && !directory->fatal())) return false;
    before(*directory);
    needed_at_.erase(directory.get());
    return true;
  });
}

std::vector<std::string> Directories::paths() const {
  std::vector<std::string> paths;
  for (const auto& each : all_) paths.push_back(each->path());
  return paths;
}

bool Directories::looked() const {
  return std::ranges::all_of(all_, [](const auto& each) { return each->looked(); });
}

bool Directories::must_begin_anew() const {
  return std::ranges::any_of(all_, [](const auto& each) { return each->must_begin_anew(); });
}

std::size_t Directories::waiting_count() const {
  std::size_t waiting = 0;
  for (const auto& each : all_) waiting += each->waiting_count();
  return waiting;
}

bool Directories::only_data_are_missing() const {
  std::size_t without_data = 0;
  for (const auto& each : all_) without_data += each->waiting_without_data();
  return without_data > 0 && without_data == waiting_count();
}

bool Directories::any_in_part() const {
  return std::ranges::any_of(all_, [](const auto& each) { return each->partial_count() > 0; });
}

bool Directories::any_news_since(MonotonicTime time) const {
  return std::ranges::any_of(all_, [time](const auto& each) { return each->last_news() >= time; });
}

void Directories::end_rest() {
  for (const auto& each : all_) each->end_rest();
}

Result<Tally> Directories::tally() const {
  Tally sum;
  for (const auto& each : all_) {
    EVALCAR_ASSIGN_OR_RETURN(const Tally one, each->tally());
    sum.published += one.published;
    sum.failed += one.failed;
    sum.unpublished += one.unpublished;
    sum.open += one.open;
    sum.total += one.total;
  }
  return sum;
}

std::chrono::milliseconds Directories::until_due(std::chrono::milliseconds at_most) const {
  for (const auto& each : all_) at_most = std::min(at_most, each->until_due());
  return at_most;
}

void Directories::add_descriptors(std::vector<pollfd>& descriptors) const {
  for (const auto& each : all_) each->add_descriptors(descriptors);
}

}  // namespace evalcar::run
