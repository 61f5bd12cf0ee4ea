// MMMU's answer parsing and evaluation, as lmms-eval 0.7.3 does it (after the official
// MMMU-Benchmark/MMMU eval_utils.py). Pure and thread-safe; the draw of a random letter is the
// caller's.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/base/result.h"

namespace evalcar::metrics {

/// The options column: the text of a Python list of strings, as ast.literal_eval reads it.
/// kCorruption says where it stops being one.
Result<std::vector<std::string>> parse_python_list(std::string_view literal);

/// The letter of option `index`: "A", "B", …
std::string option_letter(std::size_t index);

/// Which option a response chooses; absent where lmms-eval would draw one at random. `response` is
/// stripped.
std::optional<std::size_t> parse_multiple_choice(std::string_view response,
                                                 std::span<const std::string> options);

/// A candidate of an open answer: a text, or a number rounded to two decimals.
using OpenCandidate = std::variant<std::string, double>;

/// Candidates of an open response, without duplicates, in order of appearance (lmms-eval keeps them
/// in a set, whose order is left to chance).
std::vector<OpenCandidate> parse_open_response(std::string_view response);

/// Whether a candidate agrees with one of the gold answers: a gold text is part of a text, or a
/// number is equal.
bool open_answer_is_correct(std::span<const std::string> gold,
                            std::span<const OpenCandidate> candidates);

/// "validation_Art_Theory_7" -> "Art_Theory"; absent where the id has another form.
std::optional<std::string> subject_of_id(std::string_view id);

}  // namespace evalcar::metrics
