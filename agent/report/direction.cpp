#include "agent/report/direction.h"

namespace evalcar::report {

Result<bool> higher_is_better(const state::Reader& reader, std::int64_t evaluation,
                              const std::string& task, const std::string& metric) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, reader.evaluation(evaluation));
  // The numbers of a row that is being completed stand, but it has no result now; those of a job
  // are in no view.
  const auto result = reader.result(evaluation);
  if (!result.has_value() && result.error().code != ErrorCode::kNotFound) return result.error();
  if (result.has_value()) {
    for (const protocol::TaskResult& measured : result->tasks) {
      if (measured.task != task) continue;
      for (const protocol::Metric& value : measured.metrics) {
        if (value.name == metric) return value.higher_is_better;
      }
    }
  }
  state::MetricFilter filter;
  filter.run = row.run;
  filter.task = task;
  filter.metric = metric;
  bool direction = true;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(filter, [&](const state::MetricRow& known) {
    direction = known.higher_is_better;  // a task's metric has one direction
  }));
  return direction;
}

}  // namespace evalcar::report
