// Checks of keys whose values are more than one type and a bound: each stores the value, or says
// what was expected.
#pragma once

#include "agent/config/settings.h"
#include "agent/config/values.h"

namespace evalcar::config {

Status assign_pattern(Settings& settings, const Value& value);
Status assign_end_marker(Settings& settings, const Value& value);
Status assign_snapshot_dir(Settings& settings, const Value& value);
Status assign_exit_when_quiet(Settings& settings, const Value& value);
Status assign_resident_idle(Settings& settings, const Value& value);
Status assign_exit_marker(Settings& settings, const Value& value);
Status assign_poll_interval(Settings& settings, const Value& value);
Status assign_device(Settings& settings, const Value& value);
Status assign_batch_size(Settings& settings, const Value& value);
Status assign_limit(Settings& settings, const Value& value);
Status assign_max_new_tokens(Settings& settings, const Value& value);
Status assign_num_fewshot(Settings& settings, const Value& value);
Status assign_weights(Settings& settings, const Value& value);
Status assign_average_last(Settings& settings, const Value& value);
Status assign_policy(Settings& settings, const Value& value);
Status assign_anytime(Settings& settings, const Value& value);
Status assign_task_eval_steps(Settings& settings, const Value& value);
Status assign_task_every_nth(Settings& settings, const Value& value);
Status assign_strategy(Settings& settings, const Value& value);
Status assign_gpu_memory(Settings& settings, const Value& value);
Status assign_link(Settings& settings, const Value& value);
Status assign_greater_is_better(Settings& settings, const Value& value);
Status assign_webhook_url(Settings& settings, const Value& value);
Status assign_lease_budget(Settings& settings, const Value& value);
Status assign_min_free(Settings& settings, const Value& value);
Status assign_stage_timeouts(Settings& settings, const Value& value);
Status assign_cpu_weight(Settings& settings, const Value& value);
Status assign_io_weight(Settings& settings, const Value& value);
Status assign_memory_max(Settings& settings, const Value& value);

// For keys of later versions: the value is checked for its type, and not kept.
Status accept_count(Settings& settings, const Value& value);

}  // namespace evalcar::config
