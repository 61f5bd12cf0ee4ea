#include "agent/cli/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace evalcar::cli {
namespace {

// All lengths in pixels.
constexpr double kPanelWidth = 440;
constexpr double kPanelHeight = 270;
constexpr double kHeader = 64;  // title and legend
constexpr double kLeft = 56;    // of a panel, for the numbers of the y axis
constexpr double kRight = 16;
constexpr double kTop = 34;
constexpr double kBottom = 42;
constexpr double kMargin = 10;

struct Look {
  const char* kind;
  const char* name;
  const char* color;
  double shift;  // sideways, so that error bars of one step do not hide each other
};
constexpr std::array<Look, 3> kLooks = {{{"regular", "regular", "#2563eb", -1.5},
                                         {"ema", "EMA", "#ea7317", 1.5},
                                         {"average", "average", "#2f9e44", 0}}};

const Look& look_of(const std::string& kind) {
  for (const Look& look : kLooks) {
    if (kind == look.kind) return look;
  }
  return kLooks.back();
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are not allowed in XML.
        out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
    }
  }
  return out;
}

std::string number(double value, const char* format = "%.1f") {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// "0.25", "1000", "25k": short, as many digits as the distance of the ticks needs.
std::string tick_label(double value, double distance) {
  if (std::abs(value) < distance * 1e-6) return "0";
  if (distance >= 1000 && std::abs(value) >= 10000) {
    return number(value / 1000,
                  distance >= 1e3 && std::fmod(distance, 1000.0) == 0 ? "%.0f" : "%.1f") +
           "k";
  }
  int digits = 0;
  double scaled = distance;
  while (digits < 6 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled) {
    scaled *= 10;
    ++digits;
  }
  const std::string format = "%." + std::to_string(digits) + "f";
  return number(value, format.c_str());
}

void text_at(std::string& svg, double x, double y, const std::string& text, const char* style) {
  svg += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + style + ">" + escaped(text) +
         "</text>\n";
}

void line_at(std::string& svg, double x1, double y1, double x2, double y2, const char* color,
             double width) {
  svg += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" stroke=\"" + color + "\" stroke-width=\"" + number(width) +
         "\"/>\n";
}

/// A scale from data to pixels.
struct Scale {
  double low;
  double high;
  double from;
  double to;
  double operator()(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

struct Range {
  double low = 0;
  double high = 0;
  bool empty = true;
  void add(double value) {
    low = empty ? value : std::min(low, value);
    high = empty ? value : std::max(high, value);
    empty = false;
  }
};

void draw_series(std::string& svg, const PlotSeries& series, const Scale& x, const Scale& y) {
  const Look& look = look_of(series.kind);
  std::string path;
  for (const PlotPoint& point : series.points) {
    path += (path.empty() ? "M" : " L") + number(x(static_cast<double>(point.step)) + look.shift) +
            " " + number(y(point.value));
  }
  svg += "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + look.color +
         "\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n";
  for (const PlotPoint& point : series.points) {
    const double px = x(static_cast<double>(point.step)) + look.shift;
    if (point.stderr_value.has_value() && *point.stderr_value > 0) {
      const double top = y(point.value + *point.stderr_value);
      const double bottom = y(point.value - *point.stderr_value);
      line_at(svg, px, top, px, bottom, look.color, 1.2);
      line_at(svg, px - 3.5, top, px + 3.5, top, look.color, 1.2);
      line_at(svg, px - 3.5, bottom, px + 3.5, bottom, look.color, 1.2);
    }
    std::string label = std::string(look.name) + ", step " + std::to_string(point.step) + ": " +
                        number(point.value, "%.4f");
    if (point.stderr_value.has_value()) label += " ± " + number(*point.stderr_value, "%.4f");
    svg += "<circle cx=\"" + number(px) + "\" cy=\"" + number(y(point.value)) +
           "\" r=\"3.2\" fill=\"" + look.color + "\" stroke=\"#fff\" stroke-width=\"1\"><title>" +
           escaped(label) + "</title></circle>\n";
  }
}

void draw_panel(std::string& svg, const PlotPanel& panel, double left, double top) {
  Range steps;
  Range values;
  bool fractions = true;  // all between 0 and 1: the axis does not go beyond
  for (const PlotSeries& series : panel.series) {
    for (const PlotPoint& point : series.points) {
      const double error = point.stderr_value.value_or(0);
      steps.add(static_cast<double>(point.step));
      values.add(point.value - error);
      values.add(point.value + error);
      fractions = fractions && point.value >= 0 && point.value <= 1;
    }
  }
  if (steps.empty) return;
  if (fractions) {
    values.low = std::max(values.low, 0.0);
    values.high = std::min(values.high, 1.0);
  }
  if (values.high - values.low < 1e-9) {
    values.low -= fractions && values.low < 0.05 ? values.low : 0.05;
    values.high += fractions && values.high > 0.95 ? 1.0 - values.high : 0.05;
  }
  const std::vector<double> y_ticks = axis_ticks(values.low, values.high, 5);
  const double step_room = std::max(1.0, (steps.high - steps.low) * 0.04);
  const double x_from = left + kLeft;
  const double x_to = left + kPanelWidth - kRight;
  const double y_from = top + kPanelHeight - kBottom;
  const double y_to = top + kTop;
  const Scale x{steps.low - step_room, steps.high + step_room, x_from, x_to};
  const Scale y{y_ticks.front(), y_ticks.back(), y_from, y_to};

  text_at(svg, x_from, top + 20, panel.title, "class=\"panel\"");
  for (const double tick : y_ticks) {
    line_at(svg, x_from, y(tick), x_to, y(tick), "#e5e7eb", 1);
    text_at(svg, x_from - 7, y(tick) + 4, tick_label(tick, y_ticks[1] - y_ticks[0]),
            "class=\"tick\" text-anchor=\"end\"");
  }
  line_at(svg, x_from, y_from, x_to, y_from, "#6b7280", 1);
  std::vector<double> x_ticks = axis_ticks(steps.low, steps.high, 6);
  for (const double tick : x_ticks) {
    if (tick < x.low || tick > x.high || tick != std::floor(tick)) continue;
    line_at(svg, x(tick), y_from, x(tick), y_from + 4, "#6b7280", 1);
    text_at(svg, x(tick), y_from + 17,
            tick_label(tick, x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : 1),
            "class=\"tick\" text-anchor=\"middle\"");
  }
  text_at(svg, (x_from + x_to) / 2, y_from + 34, "step", "class=\"axis\" text-anchor=\"middle\"");
  for (const PlotSeries& series : panel.series) draw_series(svg, series, x, y);
}

void draw_legend(std::string& svg, const std::vector<PlotPanel>& panels) {
  double x = kMargin + 14;
  for (const Look& look : kLooks) {
    bool used = false;
    for (const PlotPanel& panel : panels) {
      for (const PlotSeries& series : panel.series) used = used || series.kind == look.kind;
    }
    if (!used) continue;
    line_at(svg, x, 50, x + 22, 50, look.color, 2);
    svg +=
        "<circle cx=\"" + number(x + 11) + "\" cy=\"50\" r=\"3.2\" fill=\"" + look.color + "\"/>\n";
    text_at(svg, x + 29, 54, look.name, "class=\"legend\"");
    x += 104;
  }
  text_at(svg, x, 54, "bars: ± one standard error", "class=\"axis\"");
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double span = std::max(high - low, 1e-9);
  const double rough = span / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double distance = power * 10;
  for (const double nice : {1.0, 2.0, 2.5, 5.0}) {
    if (nice * power >= rough * 0.999) {
      distance = nice * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / distance + 1e-9);
  for (int i = 0; i < 1000; ++i) {
    ticks.push_back((first + i) * distance);
    if (ticks.back() >= high - distance * 1e-9) break;
  }
  if (ticks.size() == 1) ticks.push_back(ticks.front() + distance);
  return ticks;
}

std::string render_svg(const std::string& title, const std::vector<PlotPanel>& panels) {
  const std::size_t columns = panels.size() > 1 ? 2 : 1;
  const std::size_t rows = std::max<std::size_t>(1, (panels.size() + columns - 1) / columns);
  const double width = static_cast<double>(columns) * kPanelWidth + 2 * kMargin;
  const double height = kHeader + static_cast<double>(rows) * kPanelHeight + kMargin;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width, "%.0f") +
                    "\" height=\"" + number(height, "%.0f") + "\" viewBox=\"0 0 " +
                    number(width, "%.0f") + " " + number(height, "%.0f") + "\">\n";
  svg +=
      "<style>text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',Arial,sans-serif;"
      "fill:#374151}.title{font-size:16px;font-weight:600;fill:#111827}"
      ".panel{font-size:13px;font-weight:600}.tick,.axis{font-size:11px;fill:#6b7280}"
      ".legend{font-size:12px}</style>\n";
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  text_at(svg, kMargin + 14, 27, title, "class=\"title\"");
  draw_legend(svg, panels);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    draw_panel(svg, panels[i], kMargin + static_cast<double>(i % columns) * kPanelWidth,
               kHeader + static_cast<double>(i / columns) * kPanelHeight);
  }
  return svg + "</svg>\n";
}

}  // namespace evalcar::cli
