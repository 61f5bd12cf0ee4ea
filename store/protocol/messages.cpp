#include "store/protocol/messages.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "store/protocol/picture_name.h"

namespace evalcar::protocol {
namespace {

using Json = nlohmann::json;

// Each message lists its fields once, in visit(); the writer and the reader below are the two
// visitors.

template <typename V>
void visit(V& v, Hello& m) {
  v("protocol", m.protocol), v("version", m.version), v("device", m.device),
      v("device_name", m.device_name);
  v("torch_version", m.torch_version), v("warning", m.warning);
}
template <typename V>
void visit(V& v, Load& m) {
  v("id", m.id), v("dir", m.dir), v("weights", m.weights), v("dtype", m.dtype),
      v("base_model", m.base_model);
  v.optional("settings", m.settings);
}
template <typename V>
void visit(V& v, Prefetch& m) {
  v("dir", m.dir), v("weights", m.weights), v("dtype", m.dtype), v("base_model", m.base_model);
}
template <typename V>
void visit(V& v, Loaded& m) {
  v("id", m.id), v("weights_sha256", m.weights_sha256), v("architecture", m.architecture),
      v("dtype", m.dtype);
  v("tensors", m.tensors), v("bytes", m.bytes), v("seconds", m.seconds);
  v.optional("prefetched", m.prefetched);
}
template <typename V>
void visit(V& v, EvaluationSettings& m) {
  v("tasks", m.tasks), v("data_dir", m.data_dir), v("tasks_dir", m.tasks_dir), v("limit", m.limit);
  v("offset", m.offset), v("batch_size", m.batch_size), v("max_new_tokens", m.max_new_tokens);
  v("max_pixels", m.max_pixels), v("min_pixels", m.min_pixels),
      v("attn_implementation", m.attn_implementation);
  v("compat", m.compat), v("gen_kwargs", m.gen_kwargs), v("num_fewshot", m.num_fewshot),
      v("seed", m.seed);
  v("bootstrap_iters", m.bootstrap_iters);
  v.unless_zero("max_pixels_set", m.max_pixels_set);
  v.unless_zero("min_pixels_set", m.min_pixels_set);
  v.unless_zero("average_last", m.average_last);
  v.unless_zero("requested", m.requested);
}
template <typename V>
void visit(V& v, Answered& m) {
  v("id", m.id), v("task", m.task), v("doc_id", m.doc_id), v("text", m.text),
      v("output_tokens", m.output_tokens);
  v("fingerprint", m.fingerprint);
  v.optional("cut_off", m.cut_off);
}
template <typename V>
void visit(V& v, Evaluate& m) {
  v("id", m.id), v("settings", m.settings);
  v.optional("measured", m.measured), v.optional("interim_at", m.interim_at);
}
template <typename V>
void visit(V& v, Cancel& m) {
  v("id", m.id);
}
template <typename V>
void visit(V&, Bye&) {}
template <typename V>
void visit(V& v, Progress& m) {
  v("id", m.id), v("stage", m.stage), v("task", m.task), v("done", m.done), v("total", m.total);
  v("tick", m.tick);
}
template <typename V>
void visit(V& v, TaskFingerprint& m) {
  v("task", m.task), v("sha256", m.sha256);
}
template <typename V>
void visit(V& v, Prepared& m) {
  v("id", m.id), v("tasks", m.tasks);
}
template <typename V>
void visit(V& v, Sample& m) {
  v("id", m.id), v("task", m.task), v("doc_id", m.doc_id), v("text", m.text),
      v("output_tokens", m.output_tokens);
  v("fingerprint", m.fingerprint);
  v.optional("cut_off", m.cut_off);
}
template <typename V>
void visit(V& v, Scored& m) {
  v("id", m.id), v("task", m.task), v("doc_id", m.doc_id), v("line", m.line);
  v("fingerprint", m.fingerprint);
  v.unless_empty("pictures", m.pictures);
}
template <typename V>
void visit(V& v, Metric& m) {
  v("name", m.name), v("filter", m.filter), v("value", m.value), v("stderr", m.stderr_value);
  v("stderr_source", m.stderr_source), v("missing", m.missing),
      v("higher_is_better", m.higher_is_better);
}
template <typename V>
void visit(V& v, TaskResult& m) {
  v("task", m.task), v("version", m.version), v("alias", m.alias), v("num_fewshot", m.num_fewshot),
      v("n", m.n);
  v("fingerprint", m.fingerprint);
  v("n_original", m.n_original), v("n_effective", m.n_effective), v("metrics", m.metrics),
      v("lmms_results", m.lmms_results);
  v("lmms_config", m.lmms_config), v("notes", m.notes), v("error", m.error);
  v.optional("error_kind", m.error_kind), v.optional("circumstances", m.circumstances);
}
template <typename V>
void visit(V& v, InterimScore& m) {
  v("task", m.task), v("fingerprint", m.fingerprint), v("n", m.n), v("documents", m.documents);
  v("metrics", m.metrics), v("notes", m.notes);
}
template <typename V>
void visit(V& v, Interim& m) {
  v("id", m.id), v("weights_sha256", m.weights_sha256), v("fraction", m.fraction);
  v("tasks", m.tasks), v("seconds", m.seconds);
}
template <typename V>
void visit(V& v, EvaluationResult& m) {
  v("id", m.id), v("weights_sha256", m.weights_sha256), v("tasks", m.tasks),
      v("seconds", m.seconds);
  v("attn_implementation", m.attn_implementation);
}
template <typename V>
void visit(V& v, JobError& m) {
  v("id", m.id), v("kind", m.kind), v("stage", m.stage), v("message", m.message),
      v("retryable", m.retryable);
  v("fatal", m.fatal);
}

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

class Writer {
 public:
  template <typename T>
  void operator()(const char* key, const T& field) {
    json_[key] = to_json_value(field);
  }
  template <typename T>
  void optional(const char* key, const T& field) {
    (*this)(key, field);
  }
  /// Left out where it says nothing, so that what was hashed before there was such a field keeps
  /// its hash.
  void unless_zero(const char* key, std::int64_t field) {
    if (field != 0) (*this)(key, field);
  }
  template <typename T>
  void unless_empty(const char* key, const std::vector<T>& field) {
    if (!field.empty()) (*this)(key, field);
  }
  Json take() { return std::move(json_); }

 private:
  template <typename T>
  static Json to_json_value(const T& field) {
    if constexpr (IsOptional<T>::value) {
      return field.has_value() ? to_json_value(*field) : Json(nullptr);
    } else if constexpr (IsVector<T>::value) {
      Json array = Json::array();
      for (const auto& element : field) array.push_back(to_json_value(element));
      return array;
    } else if constexpr (std::is_same_v<T, double>) {
      return std::isfinite(field) ? Json(field) : Json(nullptr);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return Json(field);
    } else {
      Writer inner;
      visit(inner,
            const_cast<T&>(
                field));  // visit() names the fields for both directions; the writer only reads
      return inner.take();
    }
  }
  Json json_ = Json::object();
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* key, T& field) {
    if (!problem_.empty()) return;
    const auto found = json_.find(key);
    if (found == json_.end()) {
      problem_ = std::string("field \"") + key + "\" is missing";
      return;
    }
    read_value(key, *found, field);
  }
  /// Of a field that older programs do not send.
  template <typename T>
  void optional(const char* key, T& field) {
    if (json_.contains(key)) (*this)(key, field);
  }
  void unless_zero(const char* key, std::int64_t& field) { optional(key, field); }
  template <typename T>
  void unless_empty(const char* key, std::vector<T>& field) {
    optional(key, field);
  }
  const std::string& problem() const { return problem_; }

 private:
  void expect(bool ok, const char* key, const char* what) {
    if (!ok && problem_.empty()) problem_ = std::string("field \"") + key + "\": expected " + what;
  }

  template <typename T>
  void read_value(const char* key, const Json& json, T& field) {
    if constexpr (IsOptional<T>::value) {
      field.reset();
      if (!json.is_null()) read_value(key, json, field.emplace());
    } else if constexpr (IsVector<T>::value) {
      expect(json.is_array(), key, "an array");
      if (!problem_.empty()) return;
      field.clear();
      for (const Json& element : json) read_value(key, element, field.emplace_back());
    } else if constexpr (std::is_same_v<T, bool>) {
      expect(json.is_boolean(), key, "a boolean");
      if (problem_.empty()) field = json.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      expect(json.is_number(), key, "a number");
      if (problem_.empty()) field = json.get<double>();
    } else if constexpr (std::is_unsigned_v<T>) {
      expect(json.is_number_unsigned(), key, "a whole number >= 0");
      if (problem_.empty()) field = json.get<T>();
    } else if constexpr (std::is_integral_v<T>) {
      expect(json.is_number_integer(), key, "a whole number");
      if (problem_.empty()) field = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      expect(json.is_string(), key, "a string");
      if (problem_.empty()) field = json.get<std::string>();
    } else {
      expect(json.is_object(), key, "an object");
      if (!problem_.empty()) return;
      Reader inner(json);
      visit(inner, field);
      if (!inner.problem_.empty()) problem_ = std::string("in \"") + key + "\": " + inner.problem_;
    }
  }

  const Json& json_;
  std::string problem_;
};

template <typename T>
constexpr const char* type_name();
template <>
constexpr const char* type_name<Hello>() {
  return "hello";
}
template <>
constexpr const char* type_name<Load>() {
  return "load";
}
template <>
constexpr const char* type_name<Prefetch>() {
  return "prefetch";
}
template <>
constexpr const char* type_name<Loaded>() {
  return "loaded";
}
template <>
constexpr const char* type_name<Answered>() {
  return "answered";
}
template <>
constexpr const char* type_name<Evaluate>() {
  return "evaluate";
}
template <>
constexpr const char* type_name<Cancel>() {
  return "cancel";
}
template <>
constexpr const char* type_name<Bye>() {
  return "bye";
}
template <>
constexpr const char* type_name<Progress>() {
  return "progress";
}
template <>
constexpr const char* type_name<Prepared>() {
  return "prepared";
}
template <>
constexpr const char* type_name<Sample>() {
  return "sample";
}
template <>
constexpr const char* type_name<Scored>() {
  return "scored";
}
template <>
constexpr const char* type_name<Interim>() {
  return "interim";
}
template <>
constexpr const char* type_name<EvaluationResult>() {
  return "result";
}
template <>
constexpr const char* type_name<JobError>() {
  return "error";
}

Error bad_line(std::string_view why) {
  return make_error(ErrorCode::kCorruption, "protocol: " + std::string(why));
}

template <typename T>
Result<T> read_object(const Json& json) {
  T message;
  Reader reader(json);
  visit(reader, message);
  if (!reader.problem().empty()) return bad_line(reader.problem());
  return message;
}

template <typename T>
Status check(const T&) {
  return {};
}
/// Its names become parts of paths.
Status check(const Scored& scored) {
  if (scored.pictures.size() > kMostSamplePictures) {
    return bad_line("field \"pictures\": " + std::to_string(scored.pictures.size()) +
                    " names, expected at most " + std::to_string(kMostSamplePictures));
  }
  for (const std::string& name : scored.pictures) {
    if (is_sample_picture_name(name)) continue;
    return bad_line("field \"pictures\": expected names of 64 hexadecimal digits and .jpg");
  }
  return {};
}

template <std::size_t I = 0>
Result<Message> read_message(std::string_view type, const Json& json) {
  if constexpr (I == std::variant_size_v<Message>) {
    return bad_line("unknown message type \"" + std::string(type.substr(0, 40)) + "\"");
  } else {
    using T = std::variant_alternative_t<I, Message>;
    if (type != type_name<T>()) return read_message<I + 1>(type, json);
    EVALCAR_ASSIGN_OR_RETURN(T message, read_object<T>(json));
    EVALCAR_RETURN_IF_ERROR(check(message));
    return Message(std::move(message));
  }
}

Result<Json> parse_object(std::string_view text) {
  // Depth is bounded here, before nlohmann builds (and recursively destroys) a tree of any depth.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > 16) return bad_line("nested deeper than 16");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return bad_line("not a JSON object");
  return json;
}

}  // namespace

bool is_of_surroundings(std::string_view kind) {
  return kind == kNoDevice || kind == kNoEvaluator || kind == kData || kind == kDeviceLost ||
         kind == kDeviceBusy || kind == error_code_name(ErrorCode::kInvalidArgument);
}

bool is_device_fault(std::string_view kind) { return kind == kDeviceFault || kind == kDeviceLost; }

std::string encode(const Message& message) {
  return std::visit(
      [](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        Writer writer;
        visit(writer, const_cast<T&>(m));
        Json json = writer.take();
        json["type"] = type_name<T>();
        return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
      },
      message);
}

Result<Message> decode(std::string_view line) {
  if (line.size() > kMaxLineBytes)
    return bad_line("a line of " + std::to_string(line.size()) + " bytes");
  EVALCAR_ASSIGN_OR_RETURN(const Json json, parse_object(line));
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) return bad_line("field \"type\" is missing");
  return read_message(type->get_ref<const std::string&>(), json);
}

std::string encode_settings(const EvaluationSettings& settings) {
  Writer writer;
  visit(writer, const_cast<EvaluationSettings&>(settings));
  return writer.take().dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<EvaluationSettings> decode_settings(std::string_view json) {
  EVALCAR_ASSIGN_OR_RETURN(const Json object, parse_object(json));
  return read_object<EvaluationSettings>(object);
}

}  // namespace evalcar::protocol
