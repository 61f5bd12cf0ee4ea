#include "agent/config/keys.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "agent/config/assign.h"
#include "store/protocol/messages.h"

namespace evalcar::config {
namespace {

/// A key whose value is read as one type and stored.
#define ASSIGN(field, expression)                        \
  [](Settings& s, const Value& v) -> Status {            \
    EVALCAR_ASSIGN_OR_RETURN(auto parsed, (expression)); \
    s.field = std::move(parsed);                         \
    return {};                                           \
  }

/// What lmms-eval's wrappers accept, and what they say. A wrong one would show only when a
/// checkpoint is there.
Result<std::string> attention(const Value& v) {
  auto known = choice(v, {"", "flash_attention_2", "sdpa", "eager"});
  if (known.has_value()) return known;
  return make_error(ErrorCode::kInvalidArgument, std::string(protocol::kAttentionRule));
}

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
     "A checkpoint without any mark of completion must be unchanged for so long; a quarter, if it "
     "has the same files as all before.",
     ASSIGN(watch.settle_time, duration(v))},
    {"watch.pattern", "\"checkpoint-{step}\"", "",
     "Name of a checkpoint's folder; {step} stands for a canonical whole number.", assign_pattern},
    {"watch.end_marker", "\"\"", "",
     "A file that the trainer writes last into a checkpoint; none by default.", assign_end_marker},
    {"watch.exit_when_quiet", "\"off\"", "",
     "Stop when nothing new came for so long and all is evaluated; \"off\" or a duration.",
     assign_exit_when_quiet},
    {"watch.exit_marker", "\"\"", "\"DONE\"",
     "A file that tells that training is over, in the output directory or by its whole path: the "
     "backlog and the last checkpoint are evaluated, then the agent ends.",
     assign_exit_marker},
    {"watch.exit_with_pid", "0", "", "The trainer's process: training is over when it is gone.",
     ASSIGN(watch.exit_with_pid, integer(v, 0))},
    {"watch.exit_at_max_steps", "false", "",
     "Training is over when the checkpoint that was written last says in trainer_state.json that "
     "it "
     "is the last step; one that was there before the agent, when nothing was written for 30 min "
     "(twice the longest pause between two checkpoints, if that is longer; 6 h at most).",
     ASSIGN(watch.exit_at_max_steps, boolean(v))},
    {"watch.snapshot_dir", "\"\"", "\"/dev/shm/evalcar\"",
     "Where EvalcarCallback(snapshot_dir=…) puts weights between two checkpoints, by its whole "
     "path: "
     "they are evaluated, and removed.",
     assign_snapshot_dir},

    // ---- evaluate: what is measured, and how
    {"evaluate.tasks", "[]", "",
     "Tasks to evaluate, e.g. [\"docvqa_val\", \"textvqa_val\"]; `evalcar tasks` lists them.",
     ASSIGN(evaluate.tasks, text_list(v))},
    {"evaluate.data_dir", "\"\"", "", "Folder with the data sets (`hf download --local-dir`).",
     ASSIGN(evaluate.data_dir, text(v))},
    {"evaluate.tasks_dir", "\"\"", "", "Folder with task files of your own.",
     ASSIGN(evaluate.tasks_dir, text(v))},
    {"evaluate.device", "\"auto\"", "",
     "\"auto\" (cuda:0 if there is one, else the CPU with a warning), \"cpu\", \"cuda:N\" (as "
     "CUDA counts, the fastest first; with CUDA_DEVICE_ORDER=PCI_BUS_ID in the environment, which "
     "the unit sets, as nvidia-smi does).",
     assign_device},
    {"evaluate.dtype", "\"auto\"", "",
     "\"auto\" (bfloat16 on CUDA, float32 on the CPU), \"float32\" or \"bfloat16\".",
     ASSIGN(evaluate.dtype, choice(v, {"auto", "float32", "bfloat16"}))},
    {"evaluate.batch_size", "\"auto\"", "", "Prompts at once: \"auto\" or a number.",
     assign_batch_size},
    {"evaluate.limit", "\"all\"", "",
     "\"all\", a count, or a fraction: of each task, but with compat = \"lmms-eval\" as that takes "
     "it, of the last one by name, for all.",
     assign_limit},
    {"evaluate.max_new_tokens", "\"task\"", "", "\"task\" (each task's own) or a number.",
     assign_max_new_tokens},
    {"evaluate.weights", "[\"regular\", \"ema\"]", "", "Kinds of weights to evaluate.",
     assign_weights},
    {"evaluate.average_last", "0", "",
     "Also evaluate the average of the last K checkpoints' regular weights, 2 to 64; 0: do not.",
     assign_average_last},
    {"evaluate.max_pixels", "1605632", "",
     "Largest image, in pixels. Left out: what lmms-eval's wrapper of the model's family has.",
     ASSIGN(evaluate.max_pixels, integer(v, 1))},
    {"evaluate.min_pixels", "200704", "", "Smallest image, in pixels. Left out: as max_pixels.",
     ASSIGN(evaluate.min_pixels, integer(v, 1))},
    {"evaluate.attn_implementation", "\"\"", "", "Attention kernel; empty: the best available.",
     ASSIGN(evaluate.attn_implementation, attention(v))},
    {"evaluate.gpu_memory_utilization", "0.8", "", "Part of the GPU's memory that may be used.",
     assign_gpu_memory},
    {"evaluate.share_gpu", "false", "",
     "Also take a GPU that other processes compute on, or one behind MPS: the trainer's memory and "
     "its context are then at stake.",
     ASSIGN(evaluate.share_gpu, boolean(v))},
    {"evaluate.compat", "\"lmms-eval\"", "",
     "\"lmms-eval\" (its scores, oddities included) or \"strict\".",
     ASSIGN(evaluate.compat, choice(v, {"lmms-eval", "strict"}))},
    {"evaluate.policy", "\"newest-first\"", "",
     "Order: \"newest-first\" (then backfill), \"every\" (oldest first), \"latest\" (skips).",
     assign_policy},
    {"evaluate.anytime", "[\"10%\", \"30%\"]", "",
     "Also tell the score of a random part of each task once it is answered, with its interval and "
     "\"final\": false, if the part has 20 documents; []: only whole tasks.",
     assign_anytime},
    {"evaluate.preempt", "false", "",
     "Put an evaluation that has told such a score back for a newer checkpoint (policies "
     "\"newest-first\", \"latest\"); its answers are kept.",
     ASSIGN(evaluate.preempt, boolean(v))},
    {"evaluate.every_nth", "1", "", "Evaluate each n-th checkpoint only, and the last one.",
     ASSIGN(evaluate.every_nth, integer(v, 1))},
    {"evaluate.eval_strategy", "\"steps\"", "",
     "\"steps\" (see eval_steps), \"epoch\" (the checkpoint nearest to the end of each epoch, by "
     "trainer_state.json), or \"no\" (only what `evalcar retry STEP` asks for).",
     assign_strategy},
    {"evaluate.eval_steps", "0", "",
     "With \"steps\": only steps that this number divides, and the last one; 0: every checkpoint.",
     ASSIGN(evaluate.eval_steps, integer(v, 0))},
    {"evaluate.task_every_nth", "[]", "[\"mmmu_val=4\"]",
     "Of these tasks only each n-th of the checkpoints that are evaluated, and the last one. They "
     "form an evaluation of their own, with a line of its own.",
     assign_task_every_nth},
    {"evaluate.task_eval_steps", "[]", "[\"mmmu_val=2000\"]",
     "Of these tasks only steps that the number divides, and the last one; as task_every_nth.",
     assign_task_eval_steps},
    {"evaluate.offset", "0", "", "First document of each task.",
     ASSIGN(evaluate.offset, integer(v, 0))},
    {"evaluate.num_fewshot", "\"task\"", "",
     "Examples before each question: \"task\" (each task's own, [fewshot] in its file) or a "
     "number.",
     assign_num_fewshot},
    {"evaluate.gen_kwargs", "\"\"", "", "Generation settings \"k=v,k=v\" over the tasks' own.",
     ASSIGN(evaluate.gen_kwargs, text(v))},
    {"evaluate.max_length", "0", "",
     "Taken as lmms-eval's wrappers take it: they keep it and cut no prompt by it.", accept_count,
     Effect::kIgnored},
    {"evaluate.num_gpus", "1", "", "GPUs for one evaluation.",
     ASSIGN(evaluate.num_gpus, integer(v, 1)), Effect::kRefused},
    {"evaluate.bootstrap_iters", "100000", "", "Draws for a standard error by bootstrap.",
     ASSIGN(evaluate.bootstrap_iters, integer(v, 0))},
    {"evaluate.keep_resident", "true", "",
     "Keep the evaluator's process between checkpoints; false frees its memory.",
     ASSIGN(evaluate.keep_resident, boolean(v))},
    {"evaluate.resident_idle", "\"off\"", "\"10min\"",
     "End the evaluator's process, and free its memory, when nothing was evaluated for so long; "
     "the "
     "next checkpoint starts it again. \"off\" or a duration.",
     assign_resident_idle},
    {"evaluate.prefetch", "true", "",
     "Read the next checkpoint's weights while the present one is evaluated, where memory is left.",
     ASSIGN(evaluate.prefetch, boolean(v))},
    {"evaluate.drafts", "true", "",
     "Try the previous checkpoint's answers first (float32 on the CPU): fewer steps, same answers.",
     ASSIGN(evaluate.drafts, boolean(v))},
    {"evaluate.base_model", "\"\"", "",
     "For checkpoints that lack config or tokenizer, and for adapters: the model's folder, or its "
     "id "
     "on the hub if it is on this machine (under data_dir, or in the hub cache).",
     ASSIGN(evaluate.base_model, text(v))},
    {"evaluate.seed", "0", "",
     "Seed of everything random; lmms-eval's --seed (0 is its default, 0,1234,1234,1234).",
     ASSIGN(evaluate.seed, integer(v, 0))},
    {"evaluate.log_samples", "true", "", "Write every answer to the samples files.",
     ASSIGN(evaluate.log_samples, boolean(v))},

    // ---- store, publish
    {"store.path", "\"\"", "",
     "Database file, on a local disk; empty: one a run in the state directory.",
     ASSIGN(store.path, text(v))},
    {"store.allow_network_file_system", "false", "",
     "Keep the database on NFS, FUSE and such all the same: SQLite can lose data there.",
     ASSIGN(store.allow_network_file_system, boolean(v))},
    {"publish.dir", "\"\"", "", "Where results go; empty: <output_dir>/_evalcar.",
     ASSIGN(publish.dir, text(v))},
    {"publish.file_mode", "\"0644\"", "",
     "Who may read what is made: \"0644\" (everybody), \"0664\", \"0640\", \"0660\" or \"0600\"; "
     "the umask of whoever starts it does not matter.",
     ASSIGN(publish.file_mode, choice(v, {"0644", "0664", "0640", "0660", "0600"}))},
    {"publish.link_in_checkpoint", "\"auto\"", "",
     "Make the link checkpoint-N/eval: \"auto\" (lmms-engine's layout), \"never\", \"always\".",
     assign_link},
    {"publish.keep_best", "0", "",
     "Keep the weights of the K best checkpoints of each kind when the trainer deletes them.",
     ASSIGN(publish.keep_best, integer(v, 0))},
    {"publish.metric_for_best_model", "\"eval/docvqa_val/anls\"", "",
     "The metric that best.json goes by.", ASSIGN(publish.metric_for_best_model, text(v))},
    {"publish.greater_is_better", "\"auto\"", "",
     "Whether a larger value of it is better: \"auto\" (what the metric says), true or false.",
     assign_greater_is_better},
    {"publish.tensorboard", "true", "", "Write TensorBoard event files.",
     ASSIGN(publish.tensorboard, boolean(v))},
    {"publish.aliases", "false", "", "Also log metrics under the task's other names.",
     ASSIGN(publish.aliases, boolean(v))},
    {"publish.webhook_url", "\"\"", "\"https://example.org/hooks/evalcar\"",
     "Each result is posted there as JSON: its line of metrics.jsonl, again until it is taken.",
     assign_webhook_url},
    {"publish.webhook_secret_file", "\"\"", "",
     "File with the secret that signs what is posted (HMAC-SHA256, X-Evalcar-Signature-256).",
     ASSIGN(publish.webhook_secret_file, text(v))},

    // ---- server: the HTTP API, as lmms-eval's evaluation server has it
    {"server.listen", "\"\"", "\"127.0.0.1:8000\"",
     "Address and port of the HTTP API; empty: off. Other addresses than loopback need a token.",
     ASSIGN(server.listen, text(v))},
    {"server.token_file", "\"\"", "",
     "File whose first line is the secret that requests carry: as bearer token, or as the password "
     "in http://evalcar:TOKEN@host:8000.",
     ASSIGN(server.token_file, text(v))},
    {"server.allow_from", "[]", "[\"10.0.0.0/8\"]", "Networks whose requests need no token.",
     ASSIGN(server.allow_from, text_list(v))},
    {"server.allowed_hosts", "[]", "[\"gpu7.example.org\"]",
     "Names and addresses of this machine that requests may carry in their Host field, besides "
     "localhost and the address that was asked.",
     ASSIGN(server.allowed_hosts, text_list(v))},
    {"server.allowed_roots", "[]", "[\"/data/runs\"]",
     "Folders whose checkpoints requests may name, and to which they may have results written; "
     "empty: the output directories.",
     ASSIGN(server.allowed_roots, text_list(v))},
    {"server.unix_socket", "\"\"", "",
     "Path of a unix-domain socket for the same API; it answers the own user and root.",
     ASSIGN(server.unix_socket, text(v))},
    {"server.idle_timeout", "\"10min\"", "",
     "Connections without a request are closed after this; longer than a trainer's poll interval.",
     ASSIGN(server.idle_timeout, duration(v))},

    // ---- limits
    {"limits.lease_budget", "\"unlimited\"", "",
     "Disk space that leases alone may hold; \"unlimited\" (above min_free) or a size.",
     assign_lease_budget},
    {"limits.min_free", "\"auto\"", "",
     "Free space below which leases are given up, oldest first; \"auto\": 2 x the newest "
     "checkpoint.",
     assign_min_free},
    {"limits.picture_cache", "\"20GiB\"", "",
     "Disk space for prepared pictures, which all checkpoints of all runs share, in the state "
     "directory; it leaves min_free to others (16 GiB where that is \"auto\"). 0: none are kept.",
     ASSIGN(limits.picture_cache, bytes(v))},
    {"limits.preparation_cache", "\"2GiB\"", "",
     "Disk space for prepared prompts (tokens, answer keys: some 1 KB a document), which all "
     "checkpoints of all runs share, in the state directory; it leaves min_free to others (1 GiB "
     "where that is \"auto\"). 0: none are kept.",
     ASSIGN(limits.preparation_cache, bytes(v))},
    {"limits.encoded_pictures", "\"16GiB\"", "",
     "Memory for what the vision tower made of pictures, which later checkpoints take where the "
     "tower's weights have not changed (a frozen tower); never more than a quarter of the memory "
     "that is free. No answer depends on it. 0: none is kept.",
     ASSIGN(limits.encoded_pictures, bytes(v))},
    {"limits.sample_pictures", "\"2GiB\"", "",
     "Disk space for the small pictures that the page shows beside samples (some 30 KB each, one "
     "for "
     "all checkpoints of all runs), in the state directory; it leaves min_free to others (1 GiB "
     "where that is \"auto\"). 0: none are made "
     "(which samples share a picture is known all the same).",
     ASSIGN(limits.sample_pictures, bytes(v))},
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
    {"limits.cpu_weight", "\"unit\"", "20",
     "Of systemd, 1 to 10000, against the 100 that each of the machine's other slices has; "
     "\"unit\": all units share the 10 of evalcar.slice. `evalcar init --systemd` writes this and "
     "the next two into its drop-in; without systemd they have no effect.",
     assign_cpu_weight, Effect::kOfUnit},
    {"limits.io_weight", "\"unit\"", "20", "The same for the disk.", assign_io_weight,
     Effect::kOfUnit},
    {"limits.memory_max", "\"unit\"", "\"64GiB\"",
     "Memory of agent and evaluator together: a size, \"unlimited\", or \"unit\".",
     assign_memory_max, Effect::kOfUnit},
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
