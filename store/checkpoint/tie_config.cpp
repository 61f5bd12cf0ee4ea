#include "store/checkpoint/tie_config.h"

#include <algorithm>
#include <array>
#include <span>

#include "store/checkpoint/json_scan.h"

namespace evalcar::checkpoint {
namespace {

/// Of parts that are not known; a configuration that has more makes no long work.
constexpr std::size_t kMostTying = 20;

/// What the text model's part is called.
constexpr std::array<std::string_view, 4> kTextParts = {"text_config", "llm_config",
                                                        "language_config", "lm_config"};
/// The modules that hold it; text_decoder: BLIP.
constexpr std::array<std::string_view, 4> kTextModules = {"language_model", "text_model",
                                                          "text_decoder", "llm"};
/// Modules around a model, without a part of their own.
constexpr std::array<std::string_view, 3> kOuterModules = {"model", "module", "rag"};
/// Further ones that transformers 4 asks about a head of the whole.
constexpr std::array<std::string_view, 2> kDecoderParts = {"decoder", "generator"};

/// `model_type`s of which TieFlags::do_more holds.
constexpr std::array<std::string_view, 13> kDoingMore = {"t5",
                                                         "mt5",
                                                         "umt5",
                                                         "longt5",
                                                         "switch_transformers",
                                                         "pop2piano",
                                                         "udop",
                                                         "gptsan-japanese",
                                                         "diffusion_gemma",
                                                         "t5gemma2",
                                                         "zamba",
                                                         "zamba2",
                                                         "blt"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether the part may have a head of words.
bool is_of_text(const std::vector<std::string>& part) {
  return std::ranges::none_of(part, [](const std::string& key) {
    return key.starts_with("vision") || key.starts_with("audio");
  });
}

}  // namespace

class TieConfig::Scan final : public JsonVisitor {
 public:
  TieConfig found;

 private:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.size() == 2 && path[0] == "architectures" && found.architecture_.empty() &&
        value.kind == JsonScalar::Kind::kString) {
      found.architecture_ = value.text;
    }
    if (path.empty() || path.size() > kMaxPartDepth + 1) return {};
    const std::string& key = path.back();
    const bool ties = key == kTieKey || key == kOtherTieKey;
    if (!ties && key != "model_type") return {};
    const auto part = found.parts_.find(Path(path.begin(), path.end() - 1));
    if (part == found.parts_.end()) return {};
    if (ties && value.kind == JsonScalar::Kind::kBool) {
      const bool tied = value.boolean || part->second.ties.value_or(false);
      if (tied && part->second.ties != true && is_of_text(part->first) &&
          found.tying_.size() < kMostTying) {
        found.tying_.push_back(part->first);
      }
      part->second.ties = tied;
    }
    if (!ties && value.kind == JsonScalar::Kind::kString) part->second.model_type = value.text;
    return {};
  }
  std::string open(const JsonPath& path, bool is_array) override {
    // Within an array there is an empty key. What quantises may list every module.
    const bool is_part = std::ranges::all_of(path, [](const std::string& key) {
      return !key.empty() && key.size() <= kLongestPartName &&
             key.find("quant") == std::string::npos;
    });
    if (!is_array && is_part && path.size() <= kMaxPartDepth &&
        found.parts_.size() < kMostConfigParts)
      found.parts_[path];
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }
};

bool TieFlags::said(bool what) const {
  return std::ranges::any_of(flags, [&](const TieFlag& flag) { return flag.says == what; });
}

Result<TieConfig> TieConfig::parse(std::string_view text, const std::string& where) {
  Scan scan;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, where, kMaxConfigDepth, scan));
  return std::move(scan.found);
}

TieFlag TieConfig::flag_of(const Path& path, bool is_needed) const {
  const auto part = parts_.find(path);
  return {path, part == parts_.end() ? std::nullopt : part->second.ties, is_needed};
}

TieFlags TieConfig::flags_of(std::string_view tensor) const {
  Path at;
  bool in_text = false;  // of the part around it
  const auto step_into = [&](std::string key) {
    at.push_back(std::move(key));
    if (parts_.contains(at)) return true;
    at.pop_back();
    return false;
  };
  TieFlags found;
  bool is_known = true;  // where the part of the model of text is
  found.own_name = tensor;
  for (std::size_t begin = 0; begin < tensor.size() && at.size() < kMaxPartDepth;) {
    const std::size_t dot = tensor.find('.', begin);
    if (dot == std::string_view::npos) break;
    const std::string module(tensor.substr(begin, dot - begin));
    begin = dot + 1;
    if (is_one_of(module, kOuterModules)) continue;
    if (step_into(module + "_config") || step_into(module)) {
      in_text = is_one_of(at.back(), kTextParts);
    } else if (is_one_of(module, kTextModules)) {
      is_known =
          std::ranges::any_of(kTextParts, [&](auto key) { return step_into(std::string(key)); });
      in_text = is_known || in_text;
    } else {
      break;
    }
    found.own_name = tensor.substr(begin);
  }
  if (const auto part = parts_.find(at); part != parts_.end()) {
    found.model_type = part->second.model_type;
  }
  found.flags.push_back(flag_of(at, true));
  if (in_text) found.flags.push_back(flag_of(Path(at.begin(), at.end() - 1), true));
  const auto add_within = [&](std::string_view key, bool is_needed) {
    if (step_into(std::string(key))) {
      found.flags.push_back(flag_of(at, is_needed));
      at.pop_back();
    }
  };
  // transformers 4 asks these alone, and many of their classes tie by default.
  for (const std::string_view key : kTextParts) add_within(key, true);
  for (const std::string_view key : kDecoderParts) add_within(key, false);
  if (!is_known || (!found.said(true) && !found.said(false))) {
    for (const Path& path : tying_) {
      const auto is_it = [&](const TieFlag& flag) { return flag.part == path; };
      if (std::ranges::none_of(found.flags, is_it)) found.flags.push_back(flag_of(path, false));
    }
  }
  found.do_more = std::ranges::any_of(found.flags, [&](const TieFlag& flag) {
    const auto part = parts_.find(flag.part);
    return part != parts_.end() && is_one_of(part->second.model_type, kDoingMore);
  });
  return found;
}

std::string_view TieConfig::model_type() const {
  const auto whole = parts_.find(Path());
  return whole == parts_.end() ? std::string_view() : whole->second.model_type;
}

}  // namespace evalcar::checkpoint
