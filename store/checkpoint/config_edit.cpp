#include "store/checkpoint/config_edit.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "store/checkpoint/json_scan.h"

namespace evalcar::checkpoint {
namespace {

struct Edit {
  std::size_t offset = 0;
  std::size_t length = 0;  ///< 0: inserted
  std::string text;
};

bool is_of_method(std::string_view key) {
  return key.find("quant") != std::string_view::npos ||
         key.find("compression") != std::string_view::npos;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The bytes of the scalar that begins there.
std::size_t length_of_scalar(std::string_view text, std::size_t offset) {
  std::size_t end = offset;
  if (text[offset] != '"') {
    while (end < text.size() && !is_blank(text[end]) && text[end] != ',' && text[end] != '}' &&
           text[end] != ']') {
      ++end;
    }
    return end - offset;
  }
  for (++end; end < text.size() && text[end] != '"'; ++end) {
    if (text[end] == '\\') ++end;
  }
  return std::min(end + 1, text.size()) - offset;
}

class Places final : public JsonVisitor {
 public:
  Places(std::string_view text, const std::optional<std::string>& dtype,
         std::span<const TieFlag> given_up)
      : text_(text), dtype_(dtype) {
    for (const TieFlag& flag : given_up) {
      Wanted& wanted = untied_[flag.part];
      wanted.is_needed = wanted.is_needed || flag.is_needed || flag.says.has_value();
    }
  }

  /// After the whole text was scanned.
  std::vector<Edit> edits() const {
    std::vector<Edit> all = edits_;
    for (const auto& [part, edit] : dtypes_) {
      if (is_part(part)) all.push_back(edit);
    }
    for (const auto& [part, wanted] : untied_) {
      if (!wanted.is_needed || wanted.is_said || !wanted.begin) continue;
      const std::size_t first = text_.find_first_not_of(" \t\n\r", *wanted.begin);
      const bool is_empty = first != std::string_view::npos && text_[first] == '}';
      all.push_back(
          {*wanted.begin, 0, "\"" + std::string(kTieKey) + "\": false" + (is_empty ? "" : ", ")});
    }
    std::ranges::sort(all, {}, &Edit::offset);
    return all;
  }

 private:
  struct Wanted {
    bool is_needed = false;  ///< where no key says anything, one is written
    bool is_said = false;
    std::optional<std::size_t> begin = {};  ///< behind the brace of the object
  };

  /// Whether each object on the way is a part of the model.
  bool is_part(const JsonPath& path) const {
    for (std::size_t n = 1; n <= path.size(); ++n) {
      const std::string& key = path[n - 1];
      if (key.empty() || is_of_method(key)) return false;
      const JsonPath at(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(n));
      if (!key.ends_with("_config") && !with_model_type_.contains(at)) return false;
    }
    return true;
  }

  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.empty() || path.size() > kMaxPartDepth + 1) return {};
    const std::string& key = path.back();
    const bool is_dtype = key == "dtype" || key == "torch_dtype";
    const bool is_tie = key == kTieKey || key == kOtherTieKey;
    if (!is_dtype && !is_tie && key != "model_type") return {};
    const auto is_of_no_part = [](const std::string& each) {
      return each.empty() || each.size() > kLongestPartName || is_of_method(each);
    };
    if (std::ranges::any_of(path, is_of_no_part)) return {};
    JsonPath part(path.begin(), path.end() - 1);
    const auto has_room = [&part](std::size_t parts) {
      return part.empty() || parts < kMostConfigParts;
    };
    if (key == "model_type" && has_room(with_model_type_.size())) with_model_type_.insert(part);
    if (dtype_ && is_dtype && value.kind == JsonScalar::Kind::kString && has_room(dtypes_.size())) {
      dtypes_.emplace_back(part, replaced('"' + *dtype_ + '"'));
    }
    const auto wanted = is_tie ? untied_.find(part) : untied_.end();
    if (wanted == untied_.end()) return {};
    wanted->second.is_said = wanted->second.is_said || key == kTieKey;
    edits_.push_back(replaced("false"));
    return {};
  }

  std::string open(const JsonPath& path, bool is_array) override {
    const auto wanted = untied_.find(path);
    if (!is_array && wanted != untied_.end()) wanted->second.begin = offset + 1;
    if (path.empty() || path.back() != kTieKey) return {};
    // What is no scalar says nothing that is known, and a second key of the name would be wrong.
    const auto around = untied_.find(JsonPath(path.begin(), path.end() - 1));
    if (around != untied_.end()) around->second.is_said = true;
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }

  Edit replaced(std::string text) const {
    return {offset, length_of_scalar(text_, offset), std::move(text)};
  }

  std::string_view text_;
  const std::optional<std::string>& dtype_;
  std::map<JsonPath, Wanted> untied_;
  std::set<JsonPath> with_model_type_;
  std::vector<std::pair<JsonPath, Edit>> dtypes_;
  std::vector<Edit> edits_;
};

}  // namespace

Result<std::string> edit_config(std::string_view text, const std::string& where,
                                const std::optional<std::string>& dtype,
                                std::span<const TieFlag> given_up) {
  EVALCAR_RETURN_IF_ERROR(check_json_object(text, where));
  std::string finite(text);
  replace_non_finite(finite);            // where everything lies stays
  Places places(text, dtype, given_up);  // NaN is longer than what stands for it
  EVALCAR_RETURN_IF_ERROR(scan_json(finite, where, kMaxConfigDepth, places));
  std::string edited;
  std::size_t at = 0;
  for (const Edit& edit : places.edits()) {
    edited.append(text, at, edit.offset - at).append(edit.text);
    at = edit.offset + edit.length;
  }
  return edited.append(text, at);
}

}  // namespace evalcar::checkpoint
