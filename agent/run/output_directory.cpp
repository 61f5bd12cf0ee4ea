#include "agent/run/output_directory.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/retry_pause.h"
#include "agent/run/rows.h"
#include "agent/run/warn_once.h"

namespace evalcar::run {
namespace {

using state::EvaluationState;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kUnsurePause{200};
/// While the file system does not answer: it is asked whether it does.
constexpr milliseconds kSilentPause{500};
constexpr seconds kEndPause{2};  ///< between two looks whether training goes on

}  // namespace

OutputDirectory::OutputDirectory(const Surroundings& around, const config::Settings& settings,
                                 Opened opened)
    : DirectoryParts(around, settings, std::move(opened), [this] { return looked_at(); }),
      last_news_(around.clock.monotonic_now()) {}

Result<std::unique_ptr<OutputDirectory>> OutputDirectory::open(const Surroundings& around,
                                                               const config::Settings& settings,
                                                               const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(Opened opened, DirectoryParts::open(around, settings, path));
  return std::unique_ptr<OutputDirectory>(new OutputDirectory(around, settings, std::move(opened)));
}

// ---- one turn

Status OutputDirectory::step() {
  const MonotonicTime now = around_.clock.monotonic_now();
  take_requests();
  posting_->step(run_.known() ? std::optional(run_.id()) : std::nullopt);
  if (silent()) return {};
  look_at_end();
  look_at_places();
  if (must_begin_anew()) return {};
  // Before the first look: it needs what an earlier process knew.
  if (!run_.known() && now >= retry_at_) (void)follow_run();
  if (!run_.known() && run_.recalls()) return {};  // goes on in the next turn
  for (watch::Sighting& seen : watcher_.step()) {
    last_news_ = now;
    sightings_.note(std::move(seen));
  }
  if (now < retry_at_) {
    hold_sightings();
    return {};
  }
  bool guarded = false;
  Status turn = [&]() -> Status {
    if (watcher_.trouble().empty()) EVALCAR_RETURN_IF_ERROR(follow_run());
    if (!run_.known() || run_.unsure()) return {};
    EVALCAR_RETURN_IF_ERROR(record_sightings());
    EVALCAR_RETURN_IF_ERROR(take_late_leases());
    take_snapshots();
    EVALCAR_RETURN_IF_ERROR(unfinished_.step(run_.id()));
    EVALCAR_ASSIGN_OR_RETURN(const bool kept, keep_leases());
    guarded = kept;
    const Status room = kept ? guard_disk() : Status();
    // Only now can anything be chosen.
    if (std::exchange(beginning_, is_beginning()) && !beginning_) last_news_ = now;
    return room;
  }();
  // Whatever the store says: where it takes nothing because the disk is full, this makes room.
  if (!turn.has_value() && !guarded) {
    if (const Status room = guard_disk(); !room.has_value())
      spdlog::debug("{}", room.error().message);
  }
  if (!turn.has_value()) {
    hold_sightings();
    retry_at_ = now + pause_after_turn(settings_.limits);
    turn_trouble_ = turn.error().message;
    return turn;
  }
  turn_trouble_.clear();
  // Last: what cannot be handed out must not keep anything from being recorded and leased.
  if (!run_.known() || run_.unsure()) return {};
  const Status handed_out = [&]() -> Status {
    EVALCAR_RETURN_IF_ERROR(publishing_.step());
    if (best_.changed() || recorder_.written_anew())
      EVALCAR_RETURN_IF_ERROR(publishing_.write_best());
    best_.told();
    recorder_.told_anew();
    return {};
  }();
  if (!handed_out.has_value()) turn_trouble_ = handed_out.error().message;
  return handed_out;
}

/// Which leases are needed is known once all that was found at the start is taken up. True: what
/// nobody needs is gone, the guard is next.
Result<bool> OutputDirectory::keep_leases() {
  if (!take_up_.done()) return false;
  std::optional<std::set<std::int64_t>> torn;
  if (knows_neighbours()) torn = recorder_.torn_steps();
  EVALCAR_ASSIGN_OR_RETURN(const NeededLeases::Turn turn,
                           needed_.step(run_.id(), torn, sightings_.empty()));
  if (turn.one_waits) last_news_ = around_.clock.monotonic_now();
  return turn.known;
}

/// Which checkpoints follow each other: a look that takes several turns tells of the newest first.
bool OutputDirectory::knows_neighbours() const {
  return sightings_.empty() && !watcher_.looks() && watcher_.trouble().empty();
}

Status OutputDirectory::guard_disk() {
  if (!run_.known() || run_.unsure() || run_.fatal() || !take_up_.done()) return {};
  Slice slice(around_);
  return guard_.step(run_.id(), slice);
}

/// Also of a training that ends without a checkpoint.
void OutputDirectory::look_at_end() {
  if (end_.since().has_value()) return;
  const bool at_last_step = settings_.watch.exit_at_max_steps && looked_at() &&
                            last_step_.reached(run_.id(), snapshots_.newest_ns());
  end_.step(at_last_step);
  if (end_.since().has_value()) watcher_.rescan();  // for what it wrote last
}

/// A training that began to save with accelerate's own names where we were at home already: only a
/// start can move, whoever reads a lease must have let go of it. And somebody who removed the
/// database: a start makes it again, from what was published.
void OutputDirectory::look_at_places() {
  if (must_begin_anew()) return;
  std::string why;
  if (misplaced_.look([this] { return silent(); })) {
    why = "evalcar's folder is moved";
  } else if (store_->has_lost_file()) {
    lost_database_ = true;
    why = "its database was removed";
    spdlog::error(
        "{}: was removed or replaced while it was in use; it is opened anew, and what it "
        "does not know is taken from the published files",
        store_->path());
  }
  if (why.empty()) return;
  outcomes_.interrupt(in_flight_, why);
  last_news_ = around_.clock.monotonic_now();
}

Result<bool> OutputDirectory::take_up_last() {
  if (silence_.lasts()) return false;
  if (!run_.known() || run_.unsure()) return false;
  const auto step = view_.step_written_last();
  const std::optional<std::int64_t> before = wanted_.last();
  if (!step.has_value() || before == step) return false;
  wanted_.set_last(step);
  const auto row_waits = recorder_.record_again(*step);
  if (!row_waits.has_value()) {
    wanted_.set_last(before);  // else nobody would ask again
    return row_waits.error();
  }
  averages_.look_again();  // its average was left out with it
  if (*row_waits) last_news_ = around_.clock.monotonic_now();
  return *row_waits || averages_.due();
}

bool OutputDirectory::silent() {
  const Silence::Answer answer = silence_.look();
  if (answer == Silence::Answer::kAgain) {
    watcher_.rescan();
    averages_.look_again();
  }
  if (answer == Silence::Answer::kNoForLong) {
    outcomes_.interrupt(in_flight_, "its file system does not answer");
  }
  return silence_.lasts();
}

/// In every turn: people wait for an answer.
void OutputDirectory::take_requests() {
  const std::size_t carried_out =
      inbox_.step([this](const request::Request& asked) { return answers_.to(asked); });
  if (carried_out == 0) return;
  last_news_ = around_.clock.monotonic_now();
  averages_.look_again();  // one that is to be tried again has no lease
}

/// What is there is known, and so is which of it is the newest.
bool OutputDirectory::looked_at() const {
  return run_.known() && !run_.unsure() && sightings_.empty() && !silence_.lasts() &&
         !is_beginning();
}

/// The trainer's retention does not wait until they can be recorded.
void OutputDirectory::hold_sightings() {
  if (!run_.known() || run_.unsure() || run_.fatal() || silence_.lasts()) return;
  Slice slice(around_);
  sightings_.hold(slice);
}

Status OutputDirectory::record_sightings() {
  // Who is the n-th is known once the look has found all that are there. It takes several turns
  // only where there are very many, which no retention takes.
  if (wanted_.counts() && watcher_.looks() && watcher_.trouble().empty()) return {};
  Slice slice(around_);
  if (!vanished_marked_ && watcher_.trouble().empty()) {
    EVALCAR_ASSIGN_OR_RETURN(vanished_marked_, recorder_.mark_vanished(slice));
    if (slice.was_cut()) return {};
  }
  EVALCAR_ASSIGN_OR_RETURN(const bool recorded, sightings_.record(slice));
  if (recorded) last_news_ = around_.clock.monotonic_now();
  if (recorded) guard_.look_again();
  if (!sightings_.empty()) return {};
  if (vanished_ended_ || !watcher_.looked() || !watcher_.trouble().empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(vanished_ended_, recorder_.end_vanished(slice));
  return {};
}

/// What is seen is recorded, and our folder is there to hold them.
Status OutputDirectory::take_late_leases() {
  if (!sightings_.empty() || !run_.home_ready()) return {};
  Slice slice(around_);
  return leases_.take_late(run_.id(), in_flight_.active, slice);
}

/// Once the checkpoints are known, which go before them. Their trouble is theirs alone: the guard
/// of the trainer's disk comes after them.
void OutputDirectory::take_snapshots() {
  if (is_beginning()) return;
  const auto news = snapshots_.step(end_.since().has_value());
  warn_once(snapshot_trouble_, news.has_value() ? "" : news.error().message);
  if (news.has_value() && *news) last_news_ = around_.clock.monotonic_now();
}

/// What is there at the start is not all known yet: who is chosen now would be out of order.
bool OutputDirectory::is_beginning() const {
  if (run_.recalls()) return true;
  if (!run_.known() || run_.unsure()) return false;
  if (sightings_.was_cut()) return true;
  return watcher_.trouble().empty() && !(take_up_.done() && vanished_ended_ && unwanted_.ended());
}

/// A slice was cut: the next turn comes at once.
bool OutputDirectory::is_cut_short() const {
  if (!run_.known() || run_.unsure()) return false;
  if (!sightings_.empty() || is_beginning()) return true;
  // The best are trimmed behind the averages.
  const bool waits = averages_.due() && !knows_neighbours();
  return take_up_.done() && ((!waits && (averages_.due() || best_.trimming())) || guard_.due());
}

milliseconds OutputDirectory::until_due() const {
  if (silence_.lasts()) return std::min(inbox_.until_due(), kSilentPause);
  auto due = std::min(watcher_.until_due(), inbox_.until_due());
  const MonotonicTime now = around_.clock.monotonic_now();
  const auto at = [&due, now](MonotonicTime time) {
    due = std::min(due, std::chrono::ceil<milliseconds>(time - now));
  };
  const auto in_a_turn = [this, &at](std::optional<MonotonicTime> time) {
    if (time.has_value()) at(std::max(retry_at_, *time));
  };
  if (status_.is_behind(last_news_)) at(status_.due(last_news_));
  if (!sightings_.empty() || is_cut_short() || run_.unsure()) at(retry_at_);
  if (run_.known()) {
    in_a_turn(unfinished_.due());
    if (run_.home_ready()) in_a_turn(leases_.late_due());
    if (leftovers_.there()) in_a_turn(leftovers_.not_before());
    if (publishing_.pending()) in_a_turn(publishing_.due());
  }
  if (end_.watches()) due = std::min<milliseconds>(due, kEndPause);
  in_a_turn(run_.renewal_due());
  in_a_turn(snapshots_.due());
  if (take_up_.done() && knows_neighbours()) in_a_turn(averages_.retry_due());
  if (const auto post = posting_->until_due(); post.has_value()) due = std::min(due, *post);
  return std::max(milliseconds(0), due);
}

void OutputDirectory::add_descriptors(std::vector<pollfd>& descriptors) const {
  const bool listens = !silence_.lasts() && watcher_.wants_hints();
  for (const int descriptor : {listens ? notifier_->descriptor() : -1, inbox_.descriptor()}) {
    if (descriptor >= 0) descriptors.push_back({descriptor, POLLIN, 0});
  }
}

// ---- which run it is

Status OutputDirectory::follow_run() {
  Slice look_slice(around_);
  EVALCAR_ASSIGN_OR_RETURN(const CurrentRun::Change change, run_.look(look_slice));
  switch (change) {
    case CurrentRun::Change::kSame:
      break;
    case CurrentRun::Change::kRecalls:
      return {};
    case CurrentRun::Change::kUnsure:
      retry_at_ = around_.clock.monotonic_now() + kUnsurePause;
      publishing_.look_again_at(retry_at_);
      return {};
    case CurrentRun::Change::kLeft:
      forget_run();
      publishing_.rest();
      return {};
    case CurrentRun::Change::kEntered:
      forget_run();
      // What it said without that is void. Without what was unfinished it is as before a look.
      watcher_.begin(run_.known_contents(), unfinished_.of(run_.id()).value_or({}));
      publishing_.look_again();
      break;
    case CurrentRun::Change::kBack:
      publishing_.look_again();  // the rows still know everything that was in our folder
      break;
  }
  if (!run_.known()) return {};
  EVALCAR_RETURN_IF_ERROR(take_up_.step());
  return run_.begun() ? run_.ensure_home() : Status();
}

void OutputDirectory::forget_run() {
  outcomes_.interrupt(in_flight_, "its output directory went");
  sightings_.forget();
  view_ = {};
  recorder_.forget();
  snapshots_.forget();
  last_step_.forget();
  unfinished_.forget();
  completion_.look_again();
  leases_.forget();
  averages_.forget();
  best_.forget();
  wanted_.forget();
  take_up_.forget();
  vanished_marked_ = vanished_ended_ = false;
  unwanted_.look_again();
}

// ---- evaluations

Result<std::vector<schedule::Candidate>> OutputDirectory::waiting() {
  if (!run_.known() || run_.unsure() || silence_.lasts() || is_beginning()) {
    waiting_.skip();
    return std::vector<schedule::Candidate>();
  }
  EVALCAR_ASSIGN_OR_RETURN(auto look, waiting_.look(run_.id()));
  if (look.unwanted) unwanted_.look_again();  // the next turn ends them
  return std::move(look.candidates);
}

/// Why nothing can be said now of a checkpoint that a job is about: what is there is not known, or
/// not all of it is in the rows. "": it can.
std::string OutputDirectory::why_cannot_tell(const Requested::Asked& asked) const {
  constexpr const char* kLookedAt = "its output directory is looked at";
  if (silence_.lasts()) return silence_.reason();
  if (!watcher_.looked()) return kLookedAt;
  if (!watcher_.trouble().empty()) return watcher_.trouble();
  if (run_.unsure() || must_begin_anew()) return kLookedAt;
  const bool recorded = run_.known() && sightings_.empty() && !is_beginning();
  if (recorded) return "";
  if (!turn_trouble_.empty()) return "what is there cannot be recorded: " + turn_trouble_;
  if (run_.known()) return kLookedAt;
  return asked.first ? "" : "its output directory is empty";  // maybe not mounted
}

Result<std::optional<request::JobNews>> OutputDirectory::look_at_job(
    const request::JobPlan& plan, const Requested::Asked& asked) {
  if (std::string why = why_cannot_tell(asked); !why.empty()) {
    request::JobNews news{.id = plan.id, .status = "queued", .reason = std::move(why)};
    news.undecided = true;
    return std::optional(std::move(news));
  }
  if (!run_.known()) return std::optional<request::JobNews>();
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint, requested_.knows(plan));
  if (!checkpoint) return std::optional<request::JobNews>();
  EVALCAR_ASSIGN_OR_RETURN(auto news, requested_.look(plan, asked));
  if (asked.first && news.has_value())
    last_news_ = around_.clock.monotonic_now();  // it may wait now
  return news;
}

Status OutputDirectory::keep_requested(std::set<std::int64_t> wanted,
                                       const std::set<std::int64_t>& given_up) {
  // It waits since a job asks for it.
  if (requested_.keep_open(std::move(wanted))) last_news_ = around_.clock.monotonic_now();
  for (const std::int64_t evaluation : given_up) {
    if (in_flight_.active == evaluation) continue;
    EVALCAR_RETURN_IF_ERROR(drop_requested(evaluation));
  }
  return {};
}

Status OutputDirectory::drop_requested(std::int64_t evaluation) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_->read().evaluation(evaluation));
  return requested_.drop(row);
}

Result<bool> OutputDirectory::complete_one(const Circumstances& now) {
  // Before everything that is there is recorded, a row may lack a checkpoint that has it.
  if (!run_.known() || run_.unsure() || !sightings_.empty() || !watcher_.trouble().empty() ||
      silence_.lasts() || is_beginning()) {
    return false;
  }
  EVALCAR_ASSIGN_OR_RETURN(const bool taken, completion_.step(run_.id(), now));
  if (taken) last_news_ = around_.clock.monotonic_now();
  return taken;
}

Status OutputDirectory::publish(const state::Evaluation& row) {
  completion_.look_again();
  best_.look_again();
  // So that best.json names the place at once; where that fails, the next turn does it.
  const Status ranked = run_.known() ? best_.rank(run_.id()) : Status();
  if (!ranked.has_value()) spdlog::warn("{}", ranked.error().message);
  return publishing_.publish(row);
}

// ---- the whole

Result<bool> OutputDirectory::quiet() {
  EVALCAR_ASSIGN_OR_RETURN(const bool nothing_else, nothing_left());
  return posting_->may_end(nothing_else);
}

Result<bool> OutputDirectory::nothing_left() {
  if (silence_.lasts()) return false;
  const auto snapshots = snapshots_.due();
  if (snapshots.has_value() && *snapshots <= around_.clock.monotonic_now()) return false;
  if (averages_.tries_again() && watcher_.trouble().empty()) return false;
  const bool given_up = publishing_.failing();
  // None can be formed of what cannot be looked at, and nothing is trimmed before.
  const bool hopeless = averages_.due() && !watcher_.trouble().empty();
  const bool settled = hopeless ? !best_.due() : !averages_.due() && best_.settled();
  if (!sightings_.empty() || is_beginning() || (publishing_.pending() && !given_up) ||
      !watcher_.settled() || (take_up_.done() && !settled))
    return false;
  if (!run_.known()) return true;
  bool open = false;
  EVALCAR_RETURN_IF_ERROR(store_->read().for_each_evaluation(
      {.run_id = run_.id()}, [this, given_up, &open](const state::Evaluation& row) {
        if (row.state == EvaluationState::kScored && given_up) return;
        if (row.settings.requested != 0 && !requested_.is_open(row.id)) return;
        open |= !state::is_end_state(row.state) && row.state != EvaluationState::kFound;
      }));
  return !open;
}

void OutputDirectory::write_status(const publish::AgentFacts& facts, StatusTurn turn) {
  if (!status_.is_due(turn, last_news_)) return;
  publish::AgentFacts mine = facts;
  add_facts(mine, turn_trouble_);
  std::optional<std::int64_t> run;
  if (run_.known()) run = run_.id();
  if (around_.board != nullptr) {
    around_.board->tell({path_, store_->path(), run_.known() ? run_.run().name : "", mine});
  }
  // Until the first checkpoint is there, the output directory stays as the trainer made it. Nor is
  // one that was removed ours to make again, or one that took its place ours to write into.
  const bool ours = !silence_.lasts() && run_.begun() && !run_.fatal() && run_.still_there();
  status_.write(ours ? std::optional(publishing_.dir()) : std::nullopt, run, mine);
}

}  // namespace evalcar::run
