// The [request] table of a task file, and the metrics that each kind of request has.
#pragma once

#include <string>

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/toml_reader.h"

namespace evalcar::tasks {

/// "generate", "multiple_choice", …: as task files name it.
std::string_view kind_name(RequestKind kind);

/// Reads [request], if there is one, into `out.file.request`. To be read before [columns],
/// [prompt], [scorer] and [[metrics]], whose meaning it decides.
void read_request(TomlReader& reader, const toml::table& root, Definition& out);

/// Notes pictures, and a prompt builder that shows some or asks a question, beside a request that
/// reads a text as it stands. To be read after [columns], and the builder of [prompt].
void check_reads_text(TomlReader& reader, const toml::table& root, const Definition& out);

/// The aggregation of a metric, by lm-eval's name where it has one; empty for an unknown metric.
struct KnownMetric {
  const char* name;
  const char* aggregation;
  bool higher_is_better;
};
/// Of a kind that scores given tokens; the first is its main one.
std::vector<KnownMetric> metrics_of(RequestKind kind);

}  // namespace evalcar::tasks
