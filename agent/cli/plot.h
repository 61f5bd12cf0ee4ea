// Metrics over steps as an SVG picture: one panel a task and metric, one line a kind of weights,
// error bars of one standard error. Plain SVG 1.1, no scripts, no fonts of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evalcar::cli {

struct PlotPoint {
  std::int64_t step = 0;
  double value = 0;
  std::optional<double> stderr_value;
};

struct PlotSeries {
  std::string kind;               ///< "regular" | "ema" | "average": gives colour and marker
  std::vector<PlotPoint> points;  ///< by step
};

struct PlotPanel {
  std::string title;
  std::vector<PlotSeries> series;
};

/// The whole document. Panels stand in two columns (one for a single panel).
std::string render_svg(const std::string& title, const std::vector<PlotPanel>& panels);

/// Round numbers from at or below `low` to at or above `high`, about `count` of them, rising.
/// Exposed for its test.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace evalcar::cli
