// The two texts made from the table of keys: --print-config and the file of `evalcar init`.
#include <string>

#include "agent/config/config.h"

namespace evalcar::config {
namespace {

/// Breaks `text` into comment lines of at most 100 columns.
std::string comment(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t cut = text.size();
    if (cut > 98) cut = text.rfind(' ', 98);
    if (cut == std::string_view::npos || cut == 0) cut = text.size();
    out.append("# ").append(text.substr(0, cut)).append("\n");
    text.remove_prefix(cut);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return out;
}

bool must_be_set(const Key& key) {
  return key.name == "watch.output_dir" || key.name == "evaluate.tasks" ||
         key.name == "evaluate.data_dir";
}

}  // namespace

std::string print_effective(const Config& config) {
  std::string out;
  std::string_view section;
  for (const Entry& entry : config.entries) {
    if (entry.key->section() != section) {
      section = entry.key->section();
      out.append(out.empty() ? "[" : "\n[").append(section).append("]\n");
    }
    const bool set = !entry.literal.empty();
    std::string line = set ? "" : "# ";
    line.append(entry.key->leaf()).append(" = ").append(set ? entry.literal : "(not set)");
    if (line.size() < 48) line.resize(48, ' ');
    out.append(line).append("  # ").append(entry.source).append("\n");
  }
  return out;
}

std::string commented_file(const Config& config) {
  std::string out =
      "# Configuration of evalcar. A line that starts with \"#key = value\" shows the default.\n"
      "# `evalcar run --config THIS_FILE --print-config` shows the effective values.\n";
  std::string_view section;
  for (const Entry& entry : config.entries) {
    const Key& key = *entry.key;
    if (key.section() != section) {
      section = key.section();
      out.append("\n[").append(section).append("]\n");
    }
    out.append(comment(key.help));
    const bool given = entry.source != "default";
    const std::string_view fallback = key.initial.empty() ? key.example : key.initial;
    out.append(given || must_be_set(key) ? "" : "#").append(key.leaf()).append(" = ");
    out.append(given ? std::string_view(entry.literal) : fallback).append("\n");
  }
  return out;
}

}  // namespace evalcar::config
