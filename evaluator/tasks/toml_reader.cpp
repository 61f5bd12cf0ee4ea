#include "evaluator/tasks/toml_reader.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace evalcar::tasks {
namespace {

std::string type_name(const toml::node& node) {
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number";
  if (node.is_boolean()) return "true or false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

std::string short_number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::string list_of(const Names& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string did_you_mean(std::string_view word, const Names& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? std::string() : "; did you mean " + quoted(near) + "?";
}

void TomlReader::problem(const toml::source_region& at, const std::string& text) {
  problems_.push_back(source_ + ":" + std::to_string(at.begin.line) + ": " + text);
}

void TomlReader::only(const toml::table& table, const std::string& where, const Names& known) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest_word(name, known);
    problem(key.source(), "unknown key " + quoted(name) + " in " + where +
                              (near.empty() ? "; known are " + list_of(known)
                                            : "; did you mean " + quoted(near) + "?"));
  }
}

const toml::table* TomlReader::table(const toml::table& parent, std::string_view key,
                                     const std::string& where, bool required) {
  const toml::node* node = parent.get(key);
  if (node == nullptr) {
    if (required) problem(parent.source(), where + " lacks the table [" + std::string(key) + "]");
    return nullptr;
  }
  if (!node->is_table()) wrong_type(*node, key, where, "a table");
  return node->as_table();
}

std::string TomlReader::string(const toml::table& table, std::string_view key,
                               const std::string& where, bool required) {
  const toml::node* node = table.get(key);
  if (node == nullptr) {
    if (required) problem(table.source(), where + " lacks the key " + quoted(key) + " (a string)");
    return {};
  }
  if (const auto* value = node->as_string()) {
    if (required && value->get().empty())
      problem(node->source(), quoted(key) + " in " + where + " is empty");
    return value->get();
  }
  wrong_type(*node, key, where, "a string");
  return {};
}

std::string TomlReader::one_of(const toml::table& table, std::string_view key,
                               const std::string& where, bool required, const Names& known) {
  const std::string value = string(table, key, where, required);
  if (value.empty() || std::find(known.begin(), known.end(), value) != known.end()) return value;
  const std::string near = nearest_word(value, known);
  problem(table.get(key)->source(), quoted(key) + " in " + where + " is " + quoted(value) +
                                        "; known are " + list_of(known) +
                                        did_you_mean(value, known));
  return {};
}

Names TomlReader::strings(const toml::table& table, std::string_view key,
                          const std::string& where) {
  Names result;
  const toml::node* node = table.get(key);
  if (node == nullptr) return result;
  if (const auto* value = node->as_string()) return {value->get()};
  const auto* array = node->as_array();
  if (array == nullptr) {
    wrong_type(*node, key, where, "a list of strings");
    return result;
  }
  for (const toml::node& item : *array) {
    if (const auto* value = item.as_string()) {
      result.push_back(value->get());
    } else {
      wrong_type(item, key, where, "a list of strings");
    }
  }
  return result;
}

std::optional<bool> TomlReader::boolean(const toml::table& table, std::string_view key,
                                        const std::string& where) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return std::nullopt;
  if (const auto* value = node->as_boolean()) return value->get();
  wrong_type(*node, key, where, "true or false");
  return std::nullopt;
}

std::optional<double> TomlReader::number(const toml::table& table, std::string_view key,
                                         const std::string& where, double least, double most) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->is_boolean() ? std::optional<double>() : node->value<double>();
  if (!value) {
    wrong_type(*node, key, where, "a number");
  } else if (!(*value >= least && *value <= most)) {
    problem(node->source(), quoted(key) + " in " + where + " is out of its range " +
                                short_number(least) + " to " + short_number(most));
    return std::nullopt;
  }
  return value;
}

std::optional<std::int64_t> TomlReader::integer(const toml::table& table, std::string_view key,
                                                const std::string& where, std::int64_t least,
                                                std::int64_t most) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return std::nullopt;
  const auto* value = node->as_integer();
  if (value == nullptr) {
    wrong_type(*node, key, where, "an integer");
    return std::nullopt;
  }
  if (value->get() < least || value->get() > most) {
    problem(node->source(), quoted(key) + " in " + where + " is " + std::to_string(value->get()) +
                                ", expected " + std::to_string(least) + " to " +
                                std::to_string(most));
    return std::nullopt;
  }
  return value->get();
}

// All settings of a table but `without`, in file order (toml++ sorts tables by key).
Settings TomlReader::settings(const toml::table& table, const std::string& where,
                              const Names& without) {
  struct Placed {
    toml::source_position at;
    std::pair<std::string, Setting> setting;
  };
  std::vector<Placed> placed;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    Setting value;
    if (const auto* text = node.as_string()) {
      value = text->get();
    } else if (const auto* flag = node.as_boolean()) {
      value = flag->get();
    } else if (const auto* whole = node.as_integer()) {
      value = whole->get();
    } else if (const auto* real = node.as_floating_point()) {
      value = real->get();
    } else {
      wrong_type(node, name, where, "a string, a number, true or false");
      continue;
    }
    placed.push_back({key.source().begin, {name, value}});
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.at < b.at; });
  Settings result;
  for (Placed& p : placed) result.push_back(std::move(p.setting));
  return result;
}

void TomlReader::wrong_type(const toml::node& node, std::string_view key, const std::string& where,
                            const std::string& expected) {
  problem(node.source(),
          quoted(key) + " in " + where + " is " + type_name(node) + ", expected " + expected);
}

}  // namespace evalcar::tasks
