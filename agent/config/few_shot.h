// How many examples before each question are asked for, by a file or a request of a trainer's.
#pragma once

#include <cstdint>
#include <optional>

namespace evalcar::config {

/// lmms-engine's run file and its client always say a number, mostly 0, and mean lmms-eval's
/// `--num_fewshot`: 0 takes the examples of a task that has some by itself ([fewshot] num).
/// `asked`: what they say; absent: nothing. `otherwise`: what holds without them. Absent as result:
/// each task's own number. Where 0 is measured anyway it is not said, so that it makes no other
/// evaluation than the configured one.
std::optional<std::int64_t> settled_shots(std::optional<std::int64_t> asked,
                                          std::optional<std::int64_t> otherwise,
                                          bool some_have_examples);

}  // namespace evalcar::config
