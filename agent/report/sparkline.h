// A series as one short line of text: ▁▃▅▇.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace evalcar::report {

/// One block character a value between the smallest and the largest of them, which stand at the
/// bottom and at the top; all in the middle where they are equal. Of more than `most` values, runs
/// of neighbours are shown by their means. Values are finite.
std::string sparkline(std::span<const double> values, std::size_t most = 24);

/// "[#####---------------]": `part` (0..1) of `cells`.
std::string bar(double part, std::size_t cells = 20);

}  // namespace evalcar::report
