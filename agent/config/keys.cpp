#include "agent/config/keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace evalcar::config {
namespace {

Error expected(std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, "expected " + std::string(what));
}

// The readers below turn a Value into one type, or say what was expected.

Result<std::string> text(const Value& value) {
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return expected("a string");
}

Result<std::vector<std::string>> text_list(const Value& value) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return *list;
  const auto* joined = std::get_if<std::string>(&value);
  if (joined == nullptr) return expected("a string or a list of strings");
  std::vector<std::string> list;
  for (std::size_t at = 0; at <= joined->size();) {
    const std::size_t comma = std::min(joined->find(',', at), joined->size());
    std::string part = joined->substr(at, comma - at);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) list.push_back(std::move(part));
    at = comma + 1;
  }
  return list;
}

Result<std::int64_t> integer(const Value& value, std::int64_t least) {
  const auto* n = std::get_if<std::int64_t>(&value);
  if (n == nullptr || *n < least) {
    return expected("a whole number >= " + std::to_string(least));
  }
  return *n;
}

Result<double> number(const Value& value) {
  if (const auto* n = std::get_if<std::int64_t>(&value)) return static_cast<double>(*n);
  if (const auto* d = std::get_if<double>(&value); d != nullptr && std::isfinite(*d)) return *d;
  return expected("a number");
}

Result<bool> boolean(const Value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  return expected("true or false");
}

Result<Duration> duration(const Value& value) {
  const auto* s = std::get_if<std::string>(&value);
  if (s != nullptr) return parse_duration(*s);
  if (const auto* n = std::get_if<std::int64_t>(&value); n != nullptr && *n == 0)
    return Duration(0);
  return expected("a duration with a unit, such as \"10s\"");
}

Result<std::uint64_t> bytes(const Value& value) {
  const auto* s = std::get_if<std::string>(&value);
  if (s != nullptr) return parse_bytes(*s);
  if (const auto* n = std::get_if<std::int64_t>(&value); n != nullptr && *n == 0) {
    return std::uint64_t{0};
  }
  return expected("a size with a unit, such as \"8GiB\"");
}

Result<std::string> choice(const Value& value, std::initializer_list<std::string_view> choices) {
  std::string all;
  const auto* s = std::get_if<std::string>(&value);
  for (const std::string_view one : choices) {
    if (s != nullptr && *s == one) return *s;
    all.append(all.empty() ? "\"" : ", \"").append(one).append("\"");
  }
  return expected("one of " + all);
}

bool is_word(const Value& value, std::string_view word) {
  const auto* s = std::get_if<std::string>(&value);
  return s != nullptr && *s == word;
}

#define ASSIGN(field, expression)                        \
  [](Settings& s, const Value& v) -> Status {            \
    EVALCAR_ASSIGN_OR_RETURN(auto parsed, (expression)); \
    s.field = std::move(parsed);                         \
    return {};                                           \
  }

Status assign_pattern(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(std::string pattern, text(v));
  const std::size_t at = pattern.find("{step}");
  if (at == std::string::npos || pattern.find("{step}", at + 1) != std::string::npos ||
      pattern.find('/') != std::string::npos) {
    return expected("a folder's name with exactly one {step}, such as \"checkpoint-{step}\"");
  }
  s.watch.pattern = std::move(pattern);
  return {};
}

Status assign_end_marker(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(std::string marker, text(v));
  if (marker.starts_with('/') || marker.find("..") != std::string::npos) {
    return expected("the name of a file inside a checkpoint, such as \"DONE\"");
  }
  s.watch.end_marker = std::move(marker);
  return {};
}

Status assign_exit_when_quiet(Settings& s, const Value& v) {
  s.watch.exit_when_quiet.reset();
  if (is_word(v, "off")) return {};
  EVALCAR_ASSIGN_OR_RETURN(s.watch.exit_when_quiet, duration(v));
  return {};
}

Status assign_poll_interval(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const Duration interval, duration(v));
  if (interval < Duration(100)) return expected("at least \"100ms\"");
  s.watch.poll_interval = interval;
  return {};
}

Status assign_device(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(std::string device, text(v));
  const bool numbered = device.starts_with("cuda:") && device.size() > 5 && device.size() < 9 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device != "auto" && device != "cpu" && device != "cuda" && !numbered) {
    return expected("\"auto\", \"cpu\", \"cuda\" or \"cuda:N\"");
  }
  s.evaluate.device = std::move(device);
  return {};
}

Status assign_batch_size(Settings& s, const Value& v) {
  s.evaluate.batch_size = 0;
  if (is_word(v, "auto")) return {};
  const auto n = integer(v, 1);
  if (!n.has_value()) return expected("\"auto\" or a whole number >= 1");
  s.evaluate.batch_size = *n;
  return {};
}

Status assign_limit(Settings& s, const Value& v) {
  s.evaluate.limit.reset();
  if (is_word(v, "all")) return {};
  const auto n = number(v);
  if (!n.has_value() || *n <= 0 || (*n > 1 && *n != std::floor(*n))) {
    return expected("\"all\", a count >= 1, or a fraction between 0 and 1");
  }
  s.evaluate.limit = *n;
  return {};
}

Status assign_max_new_tokens(Settings& s, const Value& v) {
  s.evaluate.max_new_tokens.reset();
  if (is_word(v, "task")) return {};
  EVALCAR_ASSIGN_OR_RETURN(s.evaluate.max_new_tokens, integer(v, 1));
  return {};
}

Status assign_num_fewshot(Settings& s, const Value& v) {
  s.evaluate.num_fewshot.reset();
  if (is_word(v, "task")) return {};
  EVALCAR_ASSIGN_OR_RETURN(s.evaluate.num_fewshot, integer(v, 0));
  return {};
}

Status assign_weights(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const auto kinds, text_list(v));
  s.evaluate.weights.clear();
  for (const std::string& kind : kinds) {
    if (kind != "regular" && kind != "ema") return expected("a list of \"regular\" and \"ema\"");
    if (std::find(s.evaluate.weights.begin(), s.evaluate.weights.end(), kind) ==
        s.evaluate.weights.end()) {
      s.evaluate.weights.push_back(kind);
    }
  }
  if (s.evaluate.weights.empty()) return expected("a list of \"regular\" and \"ema\"");
  return {};
}

Status assign_policy(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string name, choice(v, {"newest-first", "every", "latest"}));
  s.evaluate.policy = name == "every"    ? Policy::kEvery
                      : name == "latest" ? Policy::kLatest
                                         : Policy::kNewestFirst;
  return {};
}

Status assign_strategy(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string name, choice(v, {"steps", "no"}));
  s.evaluate.enabled = name == "steps";
  return {};
}

Status assign_gpu_memory(Settings& s, const Value& v) {
  const auto n = number(v);
  if (!n.has_value() || *n <= 0 || *n > 1) return expected("a number above 0 and up to 1");
  s.evaluate.gpu_memory_utilization = *n;
  return {};
}

Status assign_link(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string name, choice(v, {"auto", "never", "always"}));
  s.publish.link_in_checkpoint = name == "never"    ? LinkInCheckpoint::kNever
                                 : name == "always" ? LinkInCheckpoint::kAlways
                                                    : LinkInCheckpoint::kAuto;
  return {};
}

Status assign_greater_is_better(Settings& s, const Value& v) {
  s.publish.greater_is_better.reset();
  if (is_word(v, "auto")) return {};
  const auto b = boolean(v);
  if (!b.has_value()) return expected("\"auto\", true or false");
  s.publish.greater_is_better = *b;
  return {};
}

Status assign_lease_budget(Settings& s, const Value& v) {
  s.limits.lease_budget.reset();
  if (is_word(v, "unlimited")) return {};
  EVALCAR_ASSIGN_OR_RETURN(s.limits.lease_budget, bytes(v));
  return {};
}

Status assign_min_free(Settings& s, const Value& v) {
  s.limits.min_free.reset();
  if (is_word(v, "auto")) return {};
  EVALCAR_ASSIGN_OR_RETURN(s.limits.min_free, bytes(v));
  return {};
}

/// Entries given replace theirs only; the others keep their default.
Status assign_stage_timeouts(Settings& s, const Value& v) {
  static constexpr std::array<std::string_view, 7> kStages = {
      "heartbeat", "stuck", "starting", "loading", "preparing", "evaluating", "scoring"};
  constexpr std::string_view kShape =
      "pairs like \"loading=1h\" of heartbeat, stuck, starting, loading, preparing, evaluating, "
      "scoring";
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, text_list(v));
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    const std::string stage = pair.substr(0, equals);
    if (equals == std::string::npos ||
        std::find(kStages.begin(), kStages.end(), stage) == kStages.end()) {
      return expected(kShape);
    }
    EVALCAR_ASSIGN_OR_RETURN(const Duration limit, parse_duration(pair.substr(equals + 1)));
    if (limit < Duration(1000)) return expected("time-outs of at least \"1s\"");
    s.limits.stage_timeouts[stage] = limit;
  }
  return {};
}

/// For keys of later versions: the value is checked for its type, and not kept.
Status accept_text(Settings&, const Value& v) {
  EVALCAR_RETURN_IF_ERROR(text(v));
  return {};
}
Status accept_text_list(Settings&, const Value& v) {
  EVALCAR_RETURN_IF_ERROR(text_list(v));
  return {};
}
Status accept_count(Settings&, const Value& v) {
  EVALCAR_RETURN_IF_ERROR(integer(v, 0));
  return {};
}
Status accept_duration(Settings&, const Value& v) {
  EVALCAR_RETURN_IF_ERROR(duration(v));
  return {};
}

constexpr std::string_view kPercent = "1 to 10000, systemd's weight; set by the unit.";

const Key kKeys[] = {
    // ---- watch: where checkpoints appear, and when one counts as whole
    {"watch.output_dir", "", "\"/data/run1\"",
     "The trainer's output directory: a string, or a list of several. It may not exist yet.",
     ASSIGN(watch.output_dir, text_list(v))},
    {"watch.poll_interval", "\"10s\"", "",
     "How often the disk is looked at besides the kernel's notices (none come from network file "
     "systems).",
     assign_poll_interval},
    {"watch.settle_time", "\"30s\"", "",
     "A checkpoint without any mark of completion must be unchanged for so long.",
     ASSIGN(watch.settle_time, duration(v))},
    {"watch.pattern", "\"checkpoint-{step}\"", "",
     "Name of a checkpoint's folder; {step} stands for a canonical whole number.", assign_pattern},
    {"watch.end_marker", "\"\"", "",
     "A file that the trainer writes last into a checkpoint; none by default.", assign_end_marker},
    {"watch.exit_when_quiet", "\"off\"", "",
     "Stop when nothing new came for so long and all is evaluated; \"off\" or a duration.",
     assign_exit_when_quiet},

    // ---- evaluate: what is measured, and how
    {"evaluate.tasks", "[]", "",
     "Tasks to evaluate, e.g. [\"docvqa_val\", \"textvqa_val\"]; `evalcar tasks` lists them.",
     ASSIGN(evaluate.tasks, text_list(v))},
    {"evaluate.data_dir", "\"\"", "", "Folder with the data sets (`hf download --local-dir`).",
     ASSIGN(evaluate.data_dir, text(v))},
    {"evaluate.tasks_dir", "\"\"", "", "Folder with task files of your own.",
     ASSIGN(evaluate.tasks_dir, text(v))},
    {"evaluate.device", "\"auto\"", "",
     "\"auto\" (cuda:0 if there is one, else the CPU with a warning), \"cpu\", \"cuda:N\".",
     assign_device},
    {"evaluate.dtype", "\"auto\"", "",
     "\"auto\" (bfloat16 on CUDA, float32 on the CPU), \"float32\" or \"bfloat16\".",
     ASSIGN(evaluate.dtype, choice(v, {"auto", "float32", "bfloat16"}))},
    {"evaluate.batch_size", "\"auto\"", "", "Prompts at once: \"auto\" or a number.",
     assign_batch_size},
    {"evaluate.limit", "\"all\"", "", "\"all\", a count, or a fraction of each task.",
     assign_limit},
    {"evaluate.max_new_tokens", "\"task\"", "", "\"task\" (each task's own) or a number.",
     assign_max_new_tokens},
    {"evaluate.weights", "[\"regular\", \"ema\"]", "", "Kinds of weights to evaluate.",
     assign_weights},
    {"evaluate.average_last", "0", "", "Also evaluate the average of the last K checkpoints.",
     ASSIGN(evaluate.average_last, integer(v, 0)), Effect::kRefused},
    {"evaluate.max_pixels", "1605632", "", "Largest image, in pixels.",
     ASSIGN(evaluate.max_pixels, integer(v, 1))},
    {"evaluate.min_pixels", "200704", "", "Smallest image, in pixels.",
     ASSIGN(evaluate.min_pixels, integer(v, 1))},
    {"evaluate.attn_implementation", "\"\"", "", "Attention kernel; empty: the best available.",
     ASSIGN(evaluate.attn_implementation, text(v))},
    {"evaluate.gpu_memory_utilization", "0.8", "", "Part of the GPU's memory that may be used.",
     assign_gpu_memory},
    {"evaluate.compat", "\"lmms-eval\"", "",
     "\"lmms-eval\" (its scores, oddities included) or \"strict\".",
     ASSIGN(evaluate.compat, choice(v, {"lmms-eval", "strict"}))},
    {"evaluate.policy", "\"newest-first\"", "",
     "Order: \"newest-first\" (then backfill), \"every\" (oldest first), \"latest\" (skips).",
     assign_policy},
    {"evaluate.every_nth", "1", "", "Evaluate each n-th checkpoint only.",
     ASSIGN(evaluate.every_nth, integer(v, 1))},
    {"evaluate.eval_strategy", "\"steps\"", "", "\"steps\", or \"no\" to evaluate nothing.",
     assign_strategy},
    {"evaluate.eval_steps", "0", "", "Only steps that this number divides; 0: every checkpoint.",
     ASSIGN(evaluate.eval_steps, integer(v, 0))},
    {"evaluate.offset", "0", "", "First document of each task.",
     ASSIGN(evaluate.offset, integer(v, 0))},
    {"evaluate.num_fewshot", "\"task\"", "", "\"task\" (each task's own) or a number.",
     assign_num_fewshot},
    {"evaluate.gen_kwargs", "\"\"", "", "Generation settings \"k=v,k=v\" over the tasks' own.",
     ASSIGN(evaluate.gen_kwargs, text(v))},
    {"evaluate.max_length", "0", "", "Longest prompt in tokens; 0: the model's own limit.",
     accept_count, Effect::kRefused},
    {"evaluate.num_gpus", "1", "", "GPUs for one evaluation.",
     ASSIGN(evaluate.num_gpus, integer(v, 1)), Effect::kRefused},
    {"evaluate.bootstrap_iters", "100000", "", "Draws for a standard error by bootstrap.",
     ASSIGN(evaluate.bootstrap_iters, integer(v, 0))},
    {"evaluate.keep_resident", "true", "",
     "Keep the evaluator's process between checkpoints; false frees its memory.",
     ASSIGN(evaluate.keep_resident, boolean(v))},
    {"evaluate.base_model", "\"\"", "",
     "Folder with config and tokenizer, for checkpoints that lack them.",
     ASSIGN(evaluate.base_model, text(v))},
    {"evaluate.seed", "0", "", "Seed of everything random.", ASSIGN(evaluate.seed, integer(v, 0))},
    {"evaluate.log_samples", "true", "", "Write every answer to the samples files.",
     ASSIGN(evaluate.log_samples, boolean(v))},

    // ---- store, publish
    {"store.path", "\"\"", "",
     "Database file, on a local disk; empty: one a run in the state directory.",
     ASSIGN(store.path, text(v))},
    {"publish.dir", "\"\"", "", "Where results go; empty: <output_dir>/_evalcar.",
     ASSIGN(publish.dir, text(v))},
    {"publish.link_in_checkpoint", "\"auto\"", "",
     "Make the link checkpoint-N/eval: \"auto\" (lmms-engine's layout), \"never\", \"always\".",
     assign_link},
    {"publish.keep_best", "0", "", "Keep the weights of the K best checkpoints.",
     ASSIGN(publish.keep_best, integer(v, 0)), Effect::kRefused},
    {"publish.metric_for_best_model", "\"eval/docvqa_val/anls\"", "",
     "The metric that best.json goes by.", ASSIGN(publish.metric_for_best_model, text(v))},
    {"publish.greater_is_better", "\"auto\"", "",
     "Whether a larger value of it is better: \"auto\" (what the metric says), true or false.",
     assign_greater_is_better},
    {"publish.tensorboard", "true", "", "Write TensorBoard event files.",
     ASSIGN(publish.tensorboard, boolean(v))},
    {"publish.aliases", "false", "", "Also log metrics under the task's other names.",
     ASSIGN(publish.aliases, boolean(v))},
    {"publish.webhook_url", "\"\"", "", "A URL to which each result is posted.", accept_text,
     Effect::kRefused},

    // ---- server
    {"server.listen", "\"\"", "\"127.0.0.1:8000\"", "Address of the HTTP API; empty: off.",
     accept_text, Effect::kRefused},
    {"server.token_file", "\"\"", "", "File with the API's secret.", accept_text, Effect::kRefused},
    {"server.allow_from", "[]", "", "Networks that may connect.", accept_text_list,
     Effect::kRefused},
    {"server.allowed_hosts", "[]", "", "Host names that requests may carry.", accept_text_list,
     Effect::kRefused},
    {"server.allowed_roots", "[]", "", "Folders that requests may name.", accept_text_list,
     Effect::kRefused},
    {"server.unix_socket", "\"\"", "", "Path of a UNIX socket for the API.", accept_text,
     Effect::kRefused},
    {"server.idle_timeout", "\"10min\"", "", "Idle connections are closed after this.",
     accept_duration, Effect::kRefused},

    // ---- limits
    {"limits.lease_budget", "\"unlimited\"", "",
     "Disk space that leases alone may hold; \"unlimited\" (above min_free) or a size.",
     assign_lease_budget},
    {"limits.min_free", "\"auto\"", "",
     "Free space below which leases are given up, oldest first; \"auto\": 2 x the newest "
     "checkpoint.",
     assign_min_free},
    {"limits.attempts", "3", "", "Tries for one evaluation before it is quarantined.",
     ASSIGN(limits.attempts, integer(v, 1))},
    {"limits.retry_delay", "\"10s\"", "", "Pause before the second try; doubles each time.",
     ASSIGN(limits.retry_delay, duration(v))},
    {"limits.stage_timeouts",
     "[\"heartbeat=2min\", \"stuck=10min\", \"starting=2min\", \"loading=1h\", \"preparing=6h\", "
     "\"evaluating=2d\", \"scoring=6h\"]",
     "",
     "How long each stage of an evaluation may take; heartbeat: how long the evaluator may say "
     "nothing; stuck: how long it may live without getting any further (a device or a file system "
     "that hangs). It advances with each read of a file, each picture and each layer of a batch: "
     "milliseconds, and on a slow CPU with a large model a minute or two.",
     assign_stage_timeouts},
    {"limits.cpu_weight", "100", "", kPercent, accept_count, Effect::kIgnored},
    {"limits.io_weight", "100", "", kPercent, accept_count, Effect::kIgnored},
    {"limits.memory_max", "\"unlimited\"", "", "Memory limit; set by the unit.", accept_text,
     Effect::kIgnored},
};

#undef ASSIGN

/// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0U : 1U);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Key> keys() { return kKeys; }

const Key* find_key(std::string_view name) {
  for (const Key& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string_view nearest_key(std::string_view name) {
  std::string_view best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  const std::string_view seen = name.substr(0, 200);  // a bound on the work for hostile input
  for (const Key& key : kKeys) {
    const std::string_view leaf = seen.substr(std::min(seen.rfind('.') + 1, seen.size()));
    // A key in the wrong section should find its own name.
    std::size_t distance = edit_distance(seen, key.name);
    if (const std::size_t of_leaf = edit_distance(leaf, key.leaf()); of_leaf <= 2) {
      distance = std::min(distance, of_leaf + 1);
    }
    if (distance < least) least = distance, best = key.name;
  }
  return best;
}

}  // namespace evalcar::config
