// Examples before the question, as lmms-eval 0.7.3's ContextSampler draws and joins them
// (lmms_eval/api/samplers.py): the text of an example, its answer, and so on, then the document's
// own. Behind the question of a multiple-choice example stands the choice that is right, the first
// of several.
//
// lmms-eval draws twice. Before anything is generated, each task's contexts are made in the order
// of the documents; they are what the samples file logs as "input". Its chat wrappers do not use
// them: they ask the task for the messages of each document again when its turn comes, and the
// generator goes on from where it was. So the order in which a wrapper takes its requests decides
// the prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/tasks/data_set.h"
#include "evaluator/tasks/definition.h"
#include "store/base/result.h"

namespace evalcar::tasks {

/// Which texts the model reads.
enum class FewShotTurn {
  kByInput,  ///< drawn again, requests sorted by their first text: qwen2_5_vl, qwen3_vl
  kInOrder,  ///< drawn again, in the order of the documents: huggingface
  /// Those that are logged: where given tokens are scored, as in lm-eval; elsewhere what lmms-eval
  /// does not do (compat = "strict").
  kLogged,
};

struct FewShotOptions {
  std::int64_t shots = 0;    ///< at least 1
  std::int64_t seed = 1234;  ///< lmms-eval's: protocol::fewshot_seed_of()
  FewShotTurn turn = FewShotTurn::kByInput;
  std::function<void()> advanced;  ///< called for each document; may be empty
  std::stop_token stop;            ///< ends it between two documents with kCancelled
};

/// Of each document, in the order that was asked for.
struct FewShotTexts {
  std::vector<std::string> inputs;   ///< lmms-eval's `ctx`, as its samples file shows it
  std::vector<std::string> prompts;  ///< what the model reads
};

/// How many documents are drawn for one prompt: one more where they come from the split that is
/// evaluated, since the document itself is taken out.
std::int64_t drawn_for(const Definition& definition, std::int64_t shots);

/// Whether the examples are taken from the documents that are evaluated.
bool examples_are_evaluated(const Definition& definition);

/// `examples`: the split of [fewshot], of at least drawn_for() documents; may be `data` itself.
/// kCorruption names task and document where that is without a text or an answer. Reads both sets;
/// thread-safe.
Result<FewShotTexts> few_shot_texts(const Definition& definition, const DataSet& data,
                                    const DataSet& examples, std::span<const std::int64_t> doc_ids,
                                    std::string_view model_family, const FewShotOptions& options);

}  // namespace evalcar::tasks
