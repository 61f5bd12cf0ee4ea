#include "store/checkpoint/hint_window.h"

#include <algorithm>

namespace evalcar::checkpoint {

HintWindow::HintWindow(std::size_t chunks, std::uint64_t bytes,
                       std::function<std::uint64_t(std::size_t)> bytes_of)
    : chunks_(chunks), bytes_(bytes), bytes_of_(std::move(bytes_of)) {}

std::pair<std::size_t, std::size_t> HintWindow::advance(std::size_t turn) {
  if (turn < end_) ahead_ -= bytes_of_(turn);
  const std::size_t first = std::max(end_, turn + 1);
  end_ = first;
  for (; end_ < chunks_ && ahead_ < bytes_; ++end_) ahead_ += bytes_of_(end_);
  return {first, end_};
}

}  // namespace evalcar::checkpoint
