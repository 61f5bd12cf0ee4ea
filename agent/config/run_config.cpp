#include "agent/config/run_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

namespace evalcar::config {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20U;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxTasks = 200;

/// The library recurses where texts are nested: what no person wrote is refused before it.
bool too_deep(std::string_view yaml) {
  std::size_t open = 0;
  std::size_t line_start = 0;
  std::size_t blanks = 0;
  for (std::size_t i = 0; i < yaml.size(); ++i) {
    const char c = yaml[i];
    if (c == '\n') line_start = i + 1;
    if (i == line_start) blanks = 0;
    // Each level of a block stands further to the right, or begins with a dash.
    if (i - line_start == blanks && (c == ' ' || c == '-' || c == '?')) ++blanks;
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    if (open > kMaxDepth || blanks > 4 * kMaxDepth) return true;
  }
  return false;
}

/// A few lines of anchors can stand for gigabytes; what trainers write has none.
bool has_anchor(std::string_view yaml) {
  for (std::size_t at = yaml.find('&'); at != std::string_view::npos; at = yaml.find('&', at + 1)) {
    const char before = at == 0 ? '\n' : yaml[at - 1];
    const bool begins = before == ' ' || before == '\n' || before == '[' || before == ',';
    if (begins && at + 1 < yaml.size() && std::isalnum(static_cast<unsigned char>(yaml[at + 1])))
      return true;
  }
  return false;
}

/// Takes values out of the document, one key at a time.
class Taker {
 public:
  Taker(std::string source, RunConfig& run) : source_(std::move(source)), run_(run) {}

  static std::string scalar(const YAML::Node& node, const char* key) {
    if (!node.IsMap()) return "";
    const YAML::Node value = node[key];
    return value && value.IsScalar() ? value.as<std::string>("") : "";
  }
  void take(const char* key, std::string literal) {
    run_.taken.push_back({key, std::move(literal), source_});
  }
  void take_text(const char* key, const std::string& text) {
    if (is_given(text)) take(key, quote(text));
  }
  /// A number; anything else is only noted.
  void take_number(const char* key, const std::string& text) {
    if (!is_given(text)) return;
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (*end == '\0' && number > 0) {
      take(key, text);
    } else if (!(number == 0 && *end == '\0')) {
      note(key, text);
    }
  }
  void take_word(const char* key, const std::string& text, const std::set<std::string>& known) {
    if (!is_given(text)) return;
    if (known.contains(text)) {
      take(key, quote(text));
    } else {
      note(key, text);
    }
  }
  void note(const std::string& what, const std::string& text,
            const std::string& why = "without effect here") {
    run_.notes.push_back(what + " = " + text.substr(0, 80) + ": " + why);
  }
  static bool is_true(const std::string& text) { return text == "true" || text == "True"; }
  static bool is_given(const std::string& text) {
    return !text.empty() && text != "null" && text != "~";
  }

 private:
  std::string source_;
  RunConfig& run_;
};

void take_strategy(const YAML::Node& trainer, Taker& taker) {
  const std::string strategy = Taker::scalar(trainer, "eval_strategy");
  if (strategy == "steps" || strategy == "epoch") {
    taker.take("evaluate.eval_strategy", quote(strategy));
  } else {
    taker.take("evaluate.eval_strategy",
               quote("no"));  // as the trainer takes it where it is absent
  }
  if (strategy == "steps") {
    taker.take_number("evaluate.eval_steps", Taker::scalar(trainer, "eval_steps"));
  }
  const std::string ema = Taker::scalar(trainer, "ema_enabled");
  if (ema == "false" || ema == "False") taker.take("evaluate.weights", "[\"regular\"]");
}

/// The smaller of the two that the file may have.
void take_batch_size(const YAML::Node& evaluation, const YAML::Node& arguments, Taker& taker) {
  std::int64_t smallest = 0;
  for (const std::string& text :
       {Taker::scalar(evaluation, "batch_size"), Taker::scalar(arguments, "batch_size")}) {
    const std::int64_t size = std::strtoll(text.c_str(), nullptr, 10);
    if (size > 0) smallest = smallest == 0 ? size : std::min(smallest, size);
  }
  if (smallest > 0) taker.take("evaluate.batch_size", std::to_string(smallest));
}

void take_arguments(const YAML::Node& arguments, const std::string& checkpoint_key, Taker& taker) {
  if (!arguments.IsMap()) return;
  for (const auto& entry : arguments) {
    const auto name = entry.first.as<std::string>("");
    const std::string text = entry.second.IsScalar() ? entry.second.as<std::string>("") : "";
    if (name == "max_pixels") {
      taker.take_number("evaluate.max_pixels", text);
    } else if (name == "min_pixels") {
      taker.take_number("evaluate.min_pixels", text);
    } else if (name == "attn_implementation") {
      taker.take_word("evaluate.attn_implementation", text, {"flash_attention_2", "sdpa", "eager"});
    } else if (name == "dtype" || name == "torch_dtype") {
      taker.take_word("evaluate.dtype", text, {"auto", "float32", "bfloat16"});
    } else if (name == "gpu_memory_utilization") {
      taker.take_number("evaluate.gpu_memory_utilization", text);
    } else if (name != "batch_size" && name != checkpoint_key && name != "pretrained" &&
               name != "model") {
      taker.note("model_args." + name, text.empty() ? "…" : text);
    }
  }
}

/// What the trainer and its client go by, and the agent need not.
void note_the_trainers_own(const YAML::Node& trainer, const YAML::Node& evaluation, Taker& taker) {
  const auto note = [&](const YAML::Node& node, const char* prefix, const char* key,
                        const char* why) {
    const std::string text = Taker::scalar(node, key);
    if (Taker::is_given(text)) taker.note(std::string(prefix) + key, text, why);
  };
  note(trainer, "", "save_total_limit",
       "what is not measured yet is leased before retention takes it");
  note(trainer, "", "report_to", "the trainer's own loggers get the numbers from its client");
  note(evaluation, "eval_config.", "poll_interval",
       "how often the trainer's client asks; the directory is watched by watch.poll_interval");
  note(evaluation, "eval_config.", "model", "the architecture is the checkpoint's own");
  if (Taker::is_true(Taker::scalar(evaluation, "predict_only"))) {
    taker.note("eval_config.predict_only", "true", "the answers are scored all the same");
  }
  static const std::set<std::string> kRead = {
      "tasks",          "limit",         "gen_kwargs",  "batch_size",   "model_args",
      "checkpoint_key", "num_fewshot",   "num_gpus",    "device",       "model",
      "server_url",     "poll_interval", "log_samples", "predict_only", "check_interval"};
  for (const auto& entry : evaluation) {
    const auto name = entry.first.as<std::string>("");
    const std::string text = entry.second.IsScalar() ? entry.second.as<std::string>("") : "…";
    if (!kRead.contains(name) && Taker::is_given(text)) taker.note("eval_config." + name, text);
  }
}

Result<RunConfig> read(const YAML::Node& root, const std::string& path) {
  RunConfig run;
  Taker taker(path, run);
  const auto none = [&](const char* what) {
    return make_error(ErrorCode::kNotFound, path + ": " + what);
  };
  if (!root.IsMap() || !root["trainer_args"] || !root["trainer_args"].IsMap()) {
    return none("has no trainer_args");
  }
  const YAML::Node trainer = root["trainer_args"];
  const YAML::Node evaluation = trainer["eval_config"];
  if (!evaluation || !evaluation.IsMap()) return none("its trainer_args have no eval_config");
  const YAML::Node tasks = evaluation["tasks"];
  std::string list;
  if (tasks && tasks.IsSequence() && tasks.size() <= kMaxTasks) {
    for (const YAML::Node& task : tasks) {
      list.append(list.empty() ? "" : ", ").append(quote(task.as<std::string>("")));
    }
  }
  if (list.empty()) return none("its eval_config names no tasks");
  taker.take("evaluate.tasks", "[" + list + "]");
  taker.take_number("evaluate.limit", Taker::scalar(evaluation, "limit"));
  taker.take_text("evaluate.gen_kwargs", Taker::scalar(evaluation, "gen_kwargs"));
  const YAML::Node arguments = evaluation["model_args"] ? evaluation["model_args"] : YAML::Node();
  take_batch_size(evaluation, arguments, taker);
  const std::string key = Taker::scalar(evaluation, "checkpoint_key");
  take_arguments(arguments, key.empty() ? "model" : key, taker);
  take_strategy(trainer, taker);
  // 0 is what such files usually say, and what is asked then (settled_shots()).
  if (const std::string shots = Taker::scalar(evaluation, "num_fewshot"); shots == "0") {
    taker.take("evaluate.num_fewshot", shots);
  } else {
    taker.take_number("evaluate.num_fewshot", shots);
  }
  for (const char* const name : {"num_gpus", "device"}) {
    const std::string text = Taker::scalar(evaluation, name);
    const bool usual = text == "0" || (std::string_view(name) == "num_gpus" && text == "1");
    if (Taker::is_given(text) && !usual) taker.note(std::string("eval_config.") + name, text);
  }
  const std::string samples = Taker::scalar(evaluation, "log_samples");
  if (samples == "false" || samples == "False") taker.take("evaluate.log_samples", "false");
  note_the_trainers_own(trainer, evaluation, taker);
  return run;
}

}  // namespace

Result<RunConfig> read_run_config(const FileSystem& files, const std::string& output_dir) {
  const std::string path = join_path(output_dir, "config.yaml");
  // Before it is read: whoever writes it anew meanwhile makes it another.
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, files.info_followed(path));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxBytes));
  const auto bad = [&](const std::string& why) {
    return make_error(ErrorCode::kCorruption, path + ": " + why);
  };
  if (has_anchor(text)) return bad("YAML anchors are not read");
  if (too_deep(text)) return bad("nested too deeply");
  try {
    EVALCAR_ASSIGN_OR_RETURN(RunConfig run, read(YAML::Load(text), path));
    run.file = {path, identity};
    return run;
  } catch (const YAML::Exception& error) {
    return bad(std::string("not YAML: ") + error.what());
  }
}

std::vector<Override> overrides_left_open(const Config& config, const RunConfig& run) {
  std::vector<Override> open;
  for (const Override& taken : run.taken) {
    const auto entry = std::find_if(config.entries.begin(), config.entries.end(),
                                    [&](const Entry& e) { return e.key->name == taken.key; });
    if (entry != config.entries.end() && entry->source == "default") open.push_back(taken);
  }
  return open;
}

}  // namespace evalcar::config
