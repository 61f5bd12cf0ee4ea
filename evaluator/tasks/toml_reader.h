// Reads values out of TOML tables and notes what is wrong: file, line, seen, expected, hint.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/tasks/definition.h"

namespace evalcar::tasks {

using Names = std::vector<std::string>;

/// In double quotes.
std::string quoted(std::string_view text);
/// "a, b, c".
std::string list_of(const Names& names);
/// '; did you mean "x"?', or nothing.
std::string did_you_mean(std::string_view word, const Names& known);

/// Every method returns an empty value and notes a problem where the file is wrong. `where` names
/// the table in messages.
class TomlReader {
 public:
  TomlReader(std::string source, Problems& problems)
      : source_(std::move(source)), problems_(problems) {}

  void problem(const toml::source_region& at, const std::string& text);
  void wrong_type(const toml::node& node, std::string_view key, const std::string& where,
                  const std::string& expected);
  /// Notes every key that is not known.
  void only(const toml::table& table, const std::string& where, const Names& known);

  const toml::table* table(const toml::table& parent, std::string_view key,
                           const std::string& where, bool required);
  std::string string(const toml::table& table, std::string_view key, const std::string& where,
                     bool required);
  std::string one_of(const toml::table& table, std::string_view key, const std::string& where,
                     bool required, const Names& known);
  /// A list of strings, or one string.
  Names strings(const toml::table& table, std::string_view key, const std::string& where);
  std::optional<bool> boolean(const toml::table& table, std::string_view key,
                              const std::string& where);
  std::optional<double> number(const toml::table& table, std::string_view key,
                               const std::string& where, double least, double most);
  std::optional<std::int64_t> integer(const toml::table& table, std::string_view key,
                                      const std::string& where, std::int64_t least,
                                      std::int64_t most);
  /// All settings of a table but `without`, in file order (toml++ sorts tables by key).
  Settings settings(const toml::table& table, const std::string& where, const Names& without);

 private:
  std::string source_;
  Problems& problems_;
};

}  // namespace evalcar::tasks
