#include "agent/config/assign.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "agent/config/url.h"

namespace evalcar::config {
namespace {

Status assign_off_or_duration(std::optional<Duration>& field, const Value& v) {
  field.reset();
  if (is_word(v, "off")) return {};
  EVALCAR_ASSIGN_OR_RETURN(field, duration(v));
  return {};
}

Status assign_weight(std::optional<std::int64_t>& field, const Value& v) {
  field.reset();
  if (is_word(v, "unit")) return {};
  const auto weight = integer(v, 1);
  if (!weight.has_value() || *weight > 10000) return expected("\"unit\", or 1 to 10000");
  field = *weight;
  return {};
}

}  // namespace

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

Status assign_snapshot_dir(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(std::string folder, text(v));
  if (!folder.empty() && !folder.starts_with('/')) {
    return expected("a folder's whole path, such as \"/dev/shm/evalcar\"");
  }
  s.watch.snapshot_dir = std::move(folder);
  return {};
}

Status assign_exit_when_quiet(Settings& s, const Value& v) {
  return assign_off_or_duration(s.watch.exit_when_quiet, v);
}

Status assign_resident_idle(Settings& s, const Value& v) {
  EVALCAR_RETURN_IF_ERROR(assign_off_or_duration(s.evaluate.resident_idle, v));
  const auto idle = s.evaluate.resident_idle;
  return idle.has_value() && *idle < Duration(1000) ? expected("\"off\", or at least \"1s\"")
                                                    : Status();
}

Status assign_exit_marker(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(std::string marker, text(v));
  const bool strange = marker.starts_with("checkpoint") || marker.ends_with('/');
  if (strange || (!marker.starts_with('/') && marker.find("..") != std::string::npos)) {
    return expected("the name of a file in the output directory, such as \"DONE\", or its path");
  }
  s.watch.exit_marker = std::move(marker);
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

Status assign_average_last(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t count, integer(v, 0));
  if (count == 1 || count > 64) return expected("0, or a whole number from 2 to 64");
  s.evaluate.average_last = count;
  return {};
}

Status assign_policy(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string name, choice(v, {"newest-first", "every", "latest"}));
  s.evaluate.policy = name == "every"    ? Policy::kEvery
                      : name == "latest" ? Policy::kLatest
                                         : Policy::kNewestFirst;
  return {};
}

Status assign_anytime(Settings& s, const Value& v) {
  constexpr std::string_view kShape =
      "up to 9 parts like \"10%\", above 0 % and below 100 %, or []";
  EVALCAR_ASSIGN_OR_RETURN(const auto parts, text_list(v));
  std::vector<double> fractions;
  for (const std::string& part : parts) {
    double percent = 0;
    const char* const end = part.data() + part.size();
    const auto parsed = std::from_chars(part.data(), end, percent);
    const bool whole = parsed.ec == std::errc() && parsed.ptr + 1 == end && *parsed.ptr == '%';
    if (!whole || !(percent > 0) || !(percent < 100)) return expected(kShape);
    fractions.push_back(percent / 100);
  }
  std::sort(fractions.begin(), fractions.end());
  fractions.erase(std::unique(fractions.begin(), fractions.end()), fractions.end());
  if (fractions.size() > 9) return expected(kShape);
  s.evaluate.anytime = std::move(fractions);
  return {};
}

namespace {

Result<std::map<std::string, std::int64_t>> counts_of_tasks(const Value& v) {
  constexpr std::string_view kShape = "pairs like \"mmmu_val=4\", a task and a whole number >= 1";
  EVALCAR_ASSIGN_OR_RETURN(const auto pairs, text_list(v));
  std::map<std::string, std::int64_t> counts;
  for (const std::string& pair : pairs) {
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string task = pair.substr(0, equals);
    const std::string number = pair.substr(std::min(equals + 1, pair.size()));
    std::int64_t count = 0;
    const char* const end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, count);
    const bool is_count = parsed.ec == std::errc() && parsed.ptr == end && count >= 1;
    if (task.empty() || !is_count || !counts.emplace(task, count).second) return expected(kShape);
  }
  return counts;
}

}  // namespace

Status assign_task_eval_steps(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(s.evaluate.task_eval_steps, counts_of_tasks(v));
  return {};
}

Status assign_task_every_nth(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(s.evaluate.task_every_nth, counts_of_tasks(v));
  return {};
}

Status assign_strategy(Settings& s, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string name, choice(v, {"steps", "epoch", "no"}));
  s.evaluate.eval_strategy = name == "steps"   ? EvalStrategy::kSteps
                             : name == "epoch" ? EvalStrategy::kEpoch
                                               : EvalStrategy::kNo;
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

Status assign_webhook_url(Settings& settings, const Value& v) {
  EVALCAR_ASSIGN_OR_RETURN(std::string url, text(v));
  if (!url.empty()) EVALCAR_RETURN_IF_ERROR(check_http_url(url));
  settings.publish.webhook_url = std::move(url);
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

Status assign_cpu_weight(Settings& s, const Value& v) {
  return assign_weight(s.limits.cpu_weight, v);
}

Status assign_io_weight(Settings& s, const Value& v) {
  return assign_weight(s.limits.io_weight, v);
}

Status assign_memory_max(Settings& s, const Value& v) {
  s.limits.memory_max.clear();
  if (is_word(v, "unit")) return {};
  s.limits.memory_max = "infinity";
  if (is_word(v, "unlimited")) return {};
  constexpr std::uint64_t kLeast = std::uint64_t{1}
                                   << 30U;  // less ends each evaluator at its start
  const auto most = bytes(v);
  if (!most.has_value() || *most < kLeast)
    return expected("\"unit\", \"unlimited\", or at least \"1GiB\"");
  s.limits.memory_max = std::to_string(*most);
  return {};
}

Status accept_count(Settings&, const Value& v) {
  EVALCAR_RETURN_IF_ERROR(integer(v, 0));
  return {};
}
}  // namespace evalcar::config
