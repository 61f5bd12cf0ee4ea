// Python's operations on strings, by code points.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/text/jinja_value.h"

namespace evalcar::text::jinja {

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// len(text).
std::size_t character_count(std::string_view text);
/// The characters, as views into the text.
std::vector<std::string_view> characters(std::string_view text);

/// str.strip, lstrip, rstrip: of the given characters, or of white space.
std::string_view strip(std::string_view text, std::optional<std::string_view> of, bool left,
                       bool right);
/// str.splitlines.
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
std::string capitalize(std::string_view text);
/// Jinja's `title` filter (str.title differs, and has its own rules for apostrophes).
std::string title_words(std::string_view text);
/// Replaces the first `count` places (all if negative).
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t count);
std::string join(Runtime& runtime, std::string_view glue, const std::vector<Value>& items);

/// json.dumps as transformers' tojson calls it.
struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  ///< one level of it
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(Runtime& runtime, const Value& value, const JsonOptions& options);

/// The method `name` of a str, list or dict as a callable value; undefined if there is none, or
/// if it would change the value.
Value method_of(Runtime& runtime, const Value& value, std::string_view name);

/// `object.name`: a method or attribute first, a key of a dict after that.
Value get_attribute(Runtime& runtime, const Value& object, const std::string& name);
/// `object[key]`: an item first, an attribute after that.
Value get_item(Runtime& runtime, const Value& object, const Value& key);
/// `object[start:stop:step]`; absent parts are none.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);

/// text.format(arguments…): "{}", "{0}", "{name}"; without format specifications.
Value format_braces(Runtime& runtime, const std::string& format, const Arguments& arguments);
/// "…" % values.
Value format_percent(Runtime& runtime, const std::string& format, const Value& values);

/// Filters and tests; the names are those that is_filter and is_test know.
Value apply_filter(Runtime& runtime, const std::string& name, const Value& input,
                   const Arguments& arguments);
bool apply_test(Runtime& runtime, const std::string& name, const Value& input,
                const Arguments& arguments);

}  // namespace evalcar::text::jinja
