#include "agent/publish/table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "store/base/text.h"

namespace evalcar::publish {
namespace {

/// Characters, not bytes: "±" and "↑" take one column.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string padded(const std::string& text, std::size_t columns, bool right) {
  const std::string space(columns - std::min(columns, width(text)), ' ');
  return right ? space + text : text + space;
}

/// A cell is one line, whatever a reason holds.
std::string cell(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return printable(text);
}

std::vector<std::string> cells(std::vector<std::string> row) {
  for (std::string& text : row) text = cell(std::move(text));
  return row;
}

}  // namespace

std::string format_value(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.4f", value);
  return text.data();
}

std::string markdown_table(const std::vector<std::string>& header,
                           const std::vector<std::vector<std::string>>& given_rows,
                           const std::vector<bool>& right) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : given_rows) rows.push_back(cells(row));
  std::vector<std::size_t> columns(header.size(), 3);
  const auto widen = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) columns[i] = std::max(columns[i], width(row[i]));
  };
  widen(header);
  for (const auto& row : rows) widen(row);

  std::string text;
  const auto line = [&](const std::vector<std::string>& row, bool align) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += "|" + padded(row[i], columns[i], align && right[i]);
    }
    text += "|\n";
  };
  line(header, false);
  for (std::size_t i = 0; i < header.size(); ++i) {
    text += "|" + std::string(columns[i] - 1, '-') + (right[i] ? ":" : "-");
  }
  text += "|\n";
  for (const auto& row : rows) line(row, true);
  return text;
}

std::string results_table(const protocol::EvaluationResult& result) {
  std::vector<const protocol::TaskResult*> tasks;
  for (const protocol::TaskResult& task : result.tasks) tasks.push_back(&task);
  std::sort(tasks.begin(), tasks.end(),
            [](const auto* a, const auto* b) { return a->task < b->task; });

  std::vector<std::vector<std::string>> rows;
  std::string below;
  bool ours = false;
  for (const protocol::TaskResult* task : tasks) {
    const std::string& name = task->alias.empty() ? task->task : task->alias;
    if (!task->error.empty()) {
      rows.push_back({name, "", "", "", "", "", "failed", "", ""});
      below += name + " failed: " + task->error + "\n";
      continue;
    }
    for (const protocol::Metric& metric : task->metrics) {
      std::string error = "N/A";
      if (metric.value.has_value() && metric.stderr_value.has_value()) {
        error = format_value(*metric.stderr_value);
        if (!metric.stderr_source.empty()) {
          error += '*';
          ours = true;
        }
      }
      rows.push_back({name, task->version, metric.filter, std::to_string(task->num_fewshot),
                      metric.name, metric.higher_is_better ? "↑" : "↓",
                      metric.value.has_value() ? format_value(*metric.value) : "N/A", "±", error});
      if (!metric.value.has_value()) {
        below += name + "/" + metric.name + ": " + metric.missing + "\n";
      }
    }
  }
  std::string text =
      markdown_table({"Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"},
                     rows, {false, false, false, true, false, false, true, false, true});
  if (ours)
    below +=
        "* standard error of evalcar's (bootstrap, or clustered by document); lmms-eval gives N/A "
        "here\n";
  if (!below.empty()) text += "\n" + below;
  return text;
}

}  // namespace evalcar::publish
