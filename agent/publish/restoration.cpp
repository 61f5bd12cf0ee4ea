#include "agent/publish/restoration.h"

#include <nlohmann/json.hpp>

#include "agent/publish/evaluation_events.h"
#include "agent/publish/foreign_json.h"

namespace evalcar::publish {
namespace {

/// Lines that are read from the database at once.
constexpr std::size_t kPage = 32;

/// A text of a line that this program made; "" if it has none.
std::string text_in(const std::string& line, const char* name) {
  return text_of(nlohmann::ordered_json::parse(line, nullptr, false), name);
}

}  // namespace

Status Restoration::ask_enough() const {
  if (!options_.enough || !options_.enough()) return {};
  return make_error(ErrorCode::kCancelled, "the rest is handed out in the next turn");
}

Status Restoration::write_missing_lines(std::int64_t run_id) {
  if (whole_ == std::pair(run_id, log_.looks())) return {};
  if (!missing_.has_value() || missing_->run_id != run_id || missing_->look != log_.looks()) {
    missing_ = Missing{run_id, log_.looks(), 0, 0, {}};
  }
  EVALCAR_RETURN_IF_ERROR(find_missing(*missing_));
  LogRewrite::Lines lines = std::move(missing_->lines);
  missing_.reset();
  if (!lines.empty()) EVALCAR_RETURN_IF_ERROR(make_directories(files_, options_.dir));
  EVALCAR_RETURN_IF_ERROR(log_.restore(std::move(lines)));
  line_is_there(run_id);
  return {};
}

Status Restoration::find_missing(Missing& look) const {
  const auto compare = [&look, this](const std::string& key, std::int64_t seq,
                                     const std::string& line) {
    // One without a key would not be recognised once it is there.
    if (!key.empty() && !log_.holds(key)) look.lines.emplace_back(seq, line);
  };
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const auto page,
                             store_.read().publications_after(look.run_id, look.results, kPage));
    for (const state::Publication& one : page) {
      compare(text_in(one.line, "evaluation"), one.seq, one.line);
      look.results = one.seq;
    }
    if (page.size() < kPage) break;
    EVALCAR_RETURN_IF_ERROR(ask_enough());
  }
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const auto page,
                             store_.read().interim_lines_after(look.run_id, look.interims, kPage));
    for (const state::InterimLine& one : page) {
      compare(one.key, one.seq, one.line);
      look.interims = one.seq;
    }
    if (page.size() < kPage) return {};
    EVALCAR_RETURN_IF_ERROR(ask_enough());
  }
}

Status Restoration::restore_files(std::int64_t run_id) {
  if (!restoring_.has_value() || restoring_->run_id != run_id) {
    restoring_ = Restoring{run_id, 0, false};
    if (options_.tensorboard) {
      // What is not read to its end, or cannot be read, is asked again.
      const Restoring begun = *std::exchange(restoring_, std::nullopt);
      EVALCAR_RETURN_IF_ERROR(events_.refresh());
      restoring_ = begun;
      EVALCAR_ASSIGN_OR_RETURN(const auto count, store_.read().publication_count(run_id));
      restoring_->events_gone = events_.count() < count;
    }
  }
  std::vector<TimedEvent> events;  // one write and one sync for all
  std::int64_t through = restoring_->through;
  const Status looked = restore_from(*restoring_, events, through);
  EVALCAR_RETURN_IF_ERROR(events_.append(events));
  restoring_->through = through;
  if (looked.has_value()) restoring_.reset();
  return looked;
}

Status Restoration::restore_from(Restoring& look, std::vector<TimedEvent>& events,
                                 std::int64_t& through) {
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const auto page,
                             store_.read().publications_after(look.run_id, through, kPage));
    if (page.empty()) return {};
    for (const state::Publication& publication : page) {
      if (through > look.through) EVALCAR_RETURN_IF_ERROR(ask_enough());
      if (!publication.published_at.empty()) {
        EVALCAR_RETURN_IF_ERROR(restore_one(publication, look.events_gone, events));
      }
      through = publication.seq;
    }
  }
}

Status Restoration::restore_one(const state::Publication& publication, bool events_gone,
                                std::vector<TimedEvent>& events) {
  const std::string results = text_in(publication.line, "results");  // from its own folder
  const bool results_gone = !results.empty() && !publication.pruned() &&
                            !files_.info_followed(join_path(options_.dir, results)).has_value();
  if (!results_gone && !events_gone) return {};
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation evaluation,
                           store_.read().evaluation(publication.evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const protocol::EvaluationResult result,
                           store_.read().result(evaluation.id));
  if (results_gone) {
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const ResultsFiles again,
                             results_.write(evaluation, result));
  }
  if (!events_gone) return {};
  EVALCAR_ASSIGN_OR_RETURN(auto event, event_of(options_, log_, evaluation, result));
  if (event.has_value()) events.push_back(std::move(*event));
  return {};
}

}  // namespace evalcar::publish
