#include "agent/http/known_checkpoint.h"

#include <algorithm>
#include <optional>

#include "store/state/reader.h"

namespace evalcar::http {
namespace {

Result<bool> look(const std::string& database, const std::string& checkpoint,
                  const std::string& kind) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader reader, state::Reader::open(database));
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto run = std::find_if(runs.rbegin(), runs.rend(), [&](const state::Run& one) {
    return one.output_dir == parent_path(checkpoint);
  });
  if (run == runs.rend()) return false;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, reader.checkpoints(run->id));
  std::optional<state::Checkpoint> newest;
  for (const state::Checkpoint& one : all) {
    if (one.name != base_name(checkpoint)) continue;
    if (!newest.has_value() || one.generation > newest->generation) newest = one;
  }
  if (!newest.has_value()) return false;
  state::EvaluationFilter filter;
  filter.checkpoint_id = newest->id;
  filter.kind = kind;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, reader.evaluations(filter));
  return !rows.empty();
}

}  // namespace

Result<bool> knows_checkpoint(const FileSystem& files, const std::string& database,
                              const std::string& checkpoint, const std::string& kind) {
  const auto there = files.info_followed(database);
  if (!there.has_value() && there.error().code == ErrorCode::kNotFound) return false;
  auto known = look(database, checkpoint, kind);
  if (known.has_value()) return known;
  return make_error(ErrorCode::kUnavailable,
                    "whether its checkpoint is known cannot be told now: " + known.error().message);
}

}  // namespace evalcar::http
