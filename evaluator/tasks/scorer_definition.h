// The [scorer] table and the [[metrics]] of a task file.
#pragma once

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/toml_reader.h"

namespace evalcar::tasks {

/// Reads [scorer] into `out.scorer`. To be read after [request], [columns] and [prompt], which it
/// has to go with.
void read_scorer(TomlReader& reader, const toml::table& root, Definition& out);

/// Reads [[metrics]] into `out.metrics`; without any, those that the scorer or the kind of request
/// has. To be read after read_scorer().
void read_metrics(TomlReader& reader, const toml::table& root, Definition& out);

}  // namespace evalcar::tasks
