#include "agent/cli/transfer_progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

namespace evalcar::cli {
namespace {

constexpr int kBarCells = 20;
constexpr double kGigabyte = 1e9;

}  // namespace

std::string transfer_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          double seconds) {
  const double all = static_cast<double>(std::max<std::uint64_t>(total, 1));
  const double part = std::min(1.0, static_cast<double>(done) / all);
  const auto cells = static_cast<std::size_t>(part * kBarCells);
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "] %3d %%  %.1f of %.1f GB", static_cast<int>(part * 100),
                static_cast<double>(done) / kGigabyte, static_cast<double>(total) / kGigabyte);
  std::string line = what + " [" + std::string(cells, '#') +
                     std::string(static_cast<std::size_t>(kBarCells) - cells, '-') + text.data();
  if (done > 0 && seconds > 0) {
    const double rate = static_cast<double>(done) / seconds;
    std::snprintf(text.data(), text.size(), ", %.2f GB/s, %.0f s left", rate / kGigabyte,
                  (1 - part) * all / rate);
    line += text.data();
  }
  return line;
}

TransferProgress::TransferProgress(std::string what, std::uint64_t total_bytes)
    : what_(std::move(what)),
      total_(total_bytes),
      started_(clock_.monotonic_now()),
      line_(clock_) {}

void TransferProgress::show(std::uint64_t done_bytes) {
  const auto seconds = std::chrono::duration<double>(clock_.monotonic_now() - started_);
  if (seconds.count() < 1) return;  // short work needs no bar
  line_.show(transfer_text(what_, done_bytes, total_, seconds.count()));
}

}  // namespace evalcar::cli
