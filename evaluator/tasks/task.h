// A task: a data set, a prompt, generation limits and a scorer, declared in a TOML file
// (task_file.h) and opened here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/tasks/few_shot.h"
#include "evaluator/tasks/task_file.h"
#include "evaluator/text/chat_template.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::metrics {
class PythonRandom;
}

namespace evalcar::tasks {

/// One document's prompt. `messages` hold kImage contents in the order of `images`.
struct Prompt {
  std::int64_t doc_id = 0;
  std::vector<text::Message> messages;
  std::vector<std::string> images;  ///< encoded bytes (JPEG, PNG, WebP) as the data set holds them
  std::string input;  ///< lmms-eval's `ctx`: the text part alone, as its samples file shows it
  /// Of multiple_choice and loglikelihood: what is scored behind the prompt, with its delimiter.
  std::vector<std::string> continuations = {};
};

/// One document's answer, as generated.
struct Response {
  std::int64_t doc_id = 0;
  std::string text;
  std::int64_t output_tokens = 0;
  std::optional<bool> cut_off = {};  ///< all its tokens taken and no end; absent: not known
};

struct ScoreOptions {
  std::string compat = "lmms-eval";  ///< "lmms-eval" | "strict"
  std::int64_t seed = 0;
  std::int64_t bootstrap_iters = 100000;
  std::string
      model_family;  ///< "qwen2_5_vl", …: chooses the prompt variant; in the result's configs
  std::string gen_kwargs_json;      ///< effective generation settings, for the result's configs
  std::int64_t max_new_tokens = 0;  ///< that the answers were generated with; 0: not known
  std::int64_t num_fewshot = 0;     ///< examples before each question
  std::int64_t cut_off = 0;         ///< how many of them reached it without an end; of a kind that
                                    ///< scores given tokens: how many documents were cut
  std::int64_t draft_tokens = 0;    ///< of earlier checkpoints' answers, that were tried as this
                                    ///< one's; a note in the result, and nothing else
  std::int64_t draft_tokens_taken = 0;  ///< those of them that were right
  /// Memory ran out, or others had it: fewer answers than usual were computed together. A note in
  /// the result, since company decides of rounding.
  bool narrowed = false;
  /// The wrapper of lmms-eval as which the model was asked; a note in the result. Empty: as none.
  std::string asked_as;
  /// Different pictures whose files end before their end marker; a note in the result.
  std::int64_t truncated_pictures = 0;
  std::function<void()> advanced;  ///< called for each scored answer; may be empty
  std::stop_token stop;            ///< ends scoring between two answers with kCancelled
};

struct Scores {
  protocol::TaskResult result;
  std::vector<std::string>
      lines;                   ///< lmms-eval's samples JSONL, one per response, in document order
  std::vector<double> values;  ///< of the task's main metric, one per response; NaN where a
                               ///< document has none, as nothing of it is scored
  /// The one metric that each value counts for; empty: all of the task's.
  std::vector<std::string> values_count_for;
  /// The standard errors are of pairs of questions already, not of single values.
  bool errors_are_of_pairs = false;
  /// Of a kind that scores given tokens: of each metric that is a mean.
  std::map<std::string, std::vector<double>> values_of = {};
  bool has_one_mean = true;  ///< all metrics are of `values`
};

/// An opened task. Reading is thread-safe.
class Task {
 public:
  /// Finds the data set under `data_dir` (design: "Data"), checks columns and types. kNotFound
  /// prints the command that fetches the data set; kInvalidArgument names a column that is missing,
  /// with those that are there. `shots`: of shots_of(); with any, the split of [fewshot] is opened
  /// and counted, too.
  static Result<std::unique_ptr<Task>> open(const FileSystem& files, const TaskFile& task_file,
                                            const std::string& data_dir, std::int64_t shots = 0);
  virtual ~Task() = default;

  virtual const TaskFile& file() const = 0;
  /// Documents in the split.
  virtual std::int64_t size() const = 0;
  /// Document ids that limit (of resolve_limits(), or a fraction of this task) and offset choose,
  /// as lmms-eval does.
  virtual Result<std::vector<std::int64_t>> select(std::optional<double> limit,
                                                   std::int64_t offset) const = 0;
  virtual Result<Prompt> prompt(std::int64_t doc_id, std::string_view model_family) const = 0;
  /// The texts of documents with examples before them, of a task that was opened with any. They
  /// take the place of prompt()'s input and of the one text in its messages. All documents of an
  /// evaluation at once, in order: lmms-eval draws from one to the next.
  virtual Result<FewShotTexts> few_shot(std::span<const std::int64_t> doc_ids,
                                        std::string_view model_family,
                                        const FewShotOptions& options) const = 0;
  /// The document without its pictures: a JSON object, keys in column order. What it is scored by.
  virtual Result<std::string> document_json(std::int64_t doc_id) const = 0;
  /// Names the revision of the data that was read (file names, sizes, XXH3): part of a result's
  /// identity.
  virtual std::string data_fingerprint() const = 0;
};

/// Python's `random` as lmms-eval leaves it from task to task: one per evaluation, passed to each
/// score() in turn, in the order of lmms_eval_order().
using metrics::PythonRandom;
std::shared_ptr<PythonRandom> make_python_random(std::int64_t seed);

/// The order in which lmms-eval evaluates and scores the tasks of one run: by name, backwards.
std::vector<std::string> lmms_eval_order(std::vector<std::string> names);

/// The limit for each task of a run; sizes[i] is the number of documents of the i-th task in
/// lmms_eval_order(). With compat "lmms-eval" a fraction is resolved on the first task and that
/// count used for all others, as lmms-eval does; with "strict" it is taken of each. Absent = all
/// documents. kInvalidArgument for a limit of 0, negative (but -1, which means all) or not a
/// number.
Result<std::vector<std::optional<double>>> resolve_limits(std::optional<double> limit,
                                                          std::span<const std::int64_t> sizes,
                                                          std::string_view compat);

/// Task::select() of a task of so many documents; `task` names it in messages.
Result<std::vector<std::int64_t>> select_documents(const std::string& task, std::int64_t size,
                                                   std::optional<double> limit,
                                                   std::int64_t offset);

/// lmms-eval's `n-samples.effective`: of `size` documents, as many as a limit of resolve_limits()
/// allows. An offset does not enter.
std::int64_t effective_samples(std::optional<double> limit, std::int64_t size);

/// Scores all responses of a task (in document order) exactly as lmms-eval 0.7.3; see
/// ScoreOptions::compat. `inputs[i]` is the Prompt::input of responses[i]. What doubts_about() says
/// of the answers is the list `flags` of the result's notes.
Result<Scores> score(const Task& task, std::span<const Response> responses,
                     std::span<const std::string> inputs, const ScoreOptions& options,
                     PythonRandom& random);

}  // namespace evalcar::tasks
