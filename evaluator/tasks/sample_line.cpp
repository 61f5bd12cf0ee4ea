#include "evaluator/tasks/sample_line.h"

#include <algorithm>
#include <array>

#include "evaluator/metrics/python_text.h"

namespace evalcar::tasks {
namespace {

constexpr std::size_t kMostMedia = 4;
// lmms-eval hashes Instance.doc, which it never sets: SHA-256 of "null" for every sample of every
// task.
constexpr std::string_view kDocHash =
    "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b";

bool looks_like_image(const std::string& utf8) {
  static constexpr std::array<std::string_view, 8> kEndings = {".png", ".jpg", ".jpeg", ".webp",
                                                               ".gif", ".bmp", ".tif",  ".tiff"};
  const metrics::Text lowered = metrics::lower(metrics::decode_utf8(utf8));
  const std::string text = metrics::encode_utf8(metrics::strip(lowered));
  if (text.starts_with("data:image/")) return true;
  const bool url =
      text.starts_with("http://") || text.starts_with("https://") || text.starts_with("file://");
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) {
    return url ? text.find(ending) != std::string::npos : text.ends_with(ending);
  });
}

// As lmms-eval's _extract_image_sources: strings that look like pictures, some keys of an object
// first.
void collect(const Value& value, Value& out) {
  if (out.size() >= kMostMedia) return;
  const auto add = [&](const Value& candidate) {
    if (!candidate.is_string() || !looks_like_image(candidate.get_ref<const std::string&>()))
      return;
    if (out.size() < kMostMedia && std::find(out.begin(), out.end(), candidate) == out.end())
      out.push_back(candidate);
  };
  if (value.is_string()) {
    add(value);
  } else if (value.is_object()) {
    for (const char* key : {"url", "uri", "path", "image", "image_url", "image_path"}) {
      if (const auto found = value.find(key); found != value.end()) add(*found);
    }
    for (const auto& [key, item] : value.items()) collect(item, out);
  } else if (value.is_array()) {
    for (const Value& item : value) collect(item, out);
  }
}

}  // namespace

std::string format_sample_line(const SampleLine& sample, const Value& document,
                               const Value& arguments) {
  Value line = Value::object();
  line["doc_id"] = sample.doc_id;
  line["target"] = sample.target;
  if (sample.response != sample.filtered) line["resps"] = sample.response;
  line["filtered_resps"] = sample.filtered;
  line["token_counts"] = sample.token_counts;
  line["doc_hash"] = kDocHash;
  Value media = Value::array();
  collect(document, media);
  for (const Value& argument : arguments) collect(argument, media);
  if (!media.empty()) line["input_media"] = std::move(media);
  for (const auto& [name, value] : sample.metrics.items()) line[name] = value;
  line["input"] = sample.input;
  return python_json(line);
}

}  // namespace evalcar::tasks
