#include "agent/run/output_directory.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/adoption.h"
#include "agent/run/rows.h"
#include "agent/run/warn_once.h"
#include "store/base/stale_temporaries.h"
#include "store/checkpoint/output_place.h"
#include "store/state/location.h"

namespace evalcar::run {
namespace {

using state::EvaluationState;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// limits.retry_delay, within these.
constexpr seconds kRetryPause{5};
constexpr milliseconds kLeastRetryPause{100};
constexpr milliseconds kUnsurePause{200};
/// While the file system does not answer: it is asked whether it does.
constexpr milliseconds kSilentPause{500};
constexpr seconds kEndPause{2};  ///< between two looks whether training goes on

watch::WatchOptions watch_options(const config::Settings& all, const std::string& path) {
  const config::WatchSettings& settings = all.watch;
  watch::WatchOptions options;
  options.base_model = all.evaluate.base_model;
  options.output_dir = path;
  options.pattern = settings.pattern;
  options.end_marker = settings.end_marker;
  options.poll_interval = settings.poll_interval;
  options.settle_time = settings.settle_time;
  return options;
}

Recorder::Links links_to_results(const config::Settings& all, const HomePlace& home) {
  const config::PublishSettings& settings = all.publish;
  const bool ours = settings.dir.empty();
  const std::string up = home.beside() ? "../../" : "../";
  return {settings.link_in_checkpoint,
          {join_path(ours ? home.path : settings.dir, "results"),
           ours ? up + base_name(home.path) + "/results" : join_path(settings.dir, "results")},
          all.watch.pattern};
}

}  // namespace

OutputDirectory::OutputDirectory(const Surroundings& around, const config::Settings& settings,
                                 std::string path, HomePlace home,
                                 std::unique_ptr<state::Store> store,
                                 std::unique_ptr<Posting> posting)
    : around_(around),
      settings_(settings),
      path_(std::move(path)),
      home_(std::move(home)),
      store_(std::move(store)),
      notifier_(around.make_notifier()),
      watcher_(around.files, around.clock, *notifier_, watch_options(settings, path_)),
      stage_(around.files, join_path(home_.path, "leases"), around.stopping),
      pinned_(around.files, join_path(home_.path, "pinned"), around.stopping),
      wanted_(around.files, settings.evaluate, store_->read(), view_),
      space_(around.files, settings.limits, view_, path_),
      averages_(*store_, stage_, wanted_, space_, view_, kept_),
      best_(around, settings.publish, *store_, stage_, space_, averages_, view_, kept_),
      leases_(*store_, stage_, watcher_, space_, averages_, best_, view_),
      pins_(around.files, store_->read(), stage_, pinned_, space_, view_),
      guard_(around.clock, *store_, stage_, settings.evaluate.policy, wanted_, space_, in_flight_,
             averages_, best_, leases_, pins_),
      completion_(*store_, settings.evaluate, wanted_, leases_, view_),
      run_(around, *store_, stage_, averages_, best_, path_, home_, settings.watch.pattern,
           settings.publish.dir),
      recorder_(around.files, *store_, run_, wanted_, leases_, view_, in_flight_,
                links_to_results(settings, home_)),
      sightings_(run_, recorder_, averages_, best_),
      snapshots_(around, settings, *store_, run_, recorder_, leases_, view_),
      unfinished_(*store_, around.clock, watcher_),
      publishing_(around, settings, *store_, run_, view_),
      posting_(std::move(posting)),
      requested_(*store_, run_, wanted_, leases_, publishing_, view_),
      unwanted_(*store_, wanted_, leases_),
      leftovers_(*store_, stage_),
      waiting_(around.clock, settings.limits, store_->read(), wanted_, requested_),
      outcomes_(around.clock, settings.limits, *store_, leases_, completion_),
      status_(around.files, around.clock, *store_, settings.publish),
      silence_(around.files, around.clock, path_),
      end_(around.files, around.clock, settings.watch, path_),
      inbox_(around.files, around.clock, around.make_notifier(),
             request::folder_of(store_->path())),
      answers_(
          {around, *store_, run_, wanted_, recorder_, view_, leases_, pins_, waiting_, in_flight_},
          [this] { return looked_at(); }),
      last_news_(around.clock.monotonic_now()) {}

Result<std::unique_ptr<OutputDirectory>> OutputDirectory::open(const Surroundings& around,
                                                               const config::Settings& settings,
                                                               const std::string& path) {
  std::string database = settings.store.path;
  if (database.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(database, state::default_database_path(around.files, path));
  }
  state::StoreOptions options;
  options.allow_network_file_system = settings.store.allow_network_file_system;
  options.set_damaged_aside = true;
  EVALCAR_ASSIGN_OR_RETURN(auto store,
                           state::Store::open(around.files, around.clock, database, options));
  if (!store->set_aside().empty()) {
    spdlog::error("{}; a new one is filled from the output directory", store->set_aside());
  }
  remove_stale_temporaries(around.files, parent_path(database));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t recovered, store->recover());
  // The database is ours alone now: nobody else who knows these leases is at work.
  const HomePlace home = checkpoint::home_place(around.files, path, settings.watch.pattern);
  EVALCAR_RETURN_IF_ERROR(check_home_place(around.files, path, home));
  const Status moved = move_home_beside(around.files, path, home);
  if (!moved.has_value()) spdlog::error("{}", moved.error().message);
  spdlog::info("watching {} (database {})", path, database);
  if (home.beside()) spdlog::info("what belongs to it is kept in {}", home.path);
  if (recovered > 0) spdlog::info("{} interrupted evaluations go on", recovered);
  EVALCAR_ASSIGN_OR_RETURN(auto posting, Posting::open(around, settings, *store));
  std::unique_ptr<OutputDirectory> directory(
      new OutputDirectory(around, settings, path, home, std::move(store), std::move(posting)));
  if (!moved.has_value()) directory->misplaced_ = moved.error().message;
  return directory;
}

// ---- one turn

Status OutputDirectory::step() {
  const MonotonicTime now = around_.clock.monotonic_now();
  take_requests();
  posting_->step(run_.known());
  if (silent()) return {};
  look_at_end();
  look_at_home();
  if (must_begin_anew_) return {};
  // Before the first look: it needs what an earlier process knew.
  if (!run_.known() && now >= retry_at_) (void)follow_run();
  if (!run_.known() && run_.recalls()) return {};  // goes on in the next turn
  for (watch::Sighting& seen : watcher_.step()) {
    last_news_ = now;
    sightings_.note(std::move(seen));
  }
  if (now < retry_at_) return {};
  bool guarded = false;
  Status turn = [&]() -> Status {
    if (watcher_.trouble().empty()) EVALCAR_RETURN_IF_ERROR(follow_run());
    if (!run_.known() || run_.unsure()) return {};
    EVALCAR_RETURN_IF_ERROR(record_sightings());
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
    retry_at_ = now + std::clamp<MonotonicTime::duration>(settings_.limits.retry_delay,
                                                          kLeastRetryPause, kRetryPause);
    turn_trouble_ = turn.error().message;
    return turn;
  }
  turn_trouble_.clear();
  // Last: what cannot be handed out must not keep anything from being recorded and leased.
  if (!run_.known() || run_.unsure()) return {};
  const Status handed_out = [&]() -> Status {
    EVALCAR_RETURN_IF_ERROR(publishing_.step());
    if (best_.changed()) EVALCAR_RETURN_IF_ERROR(publishing_.write_best());
    best_.told();
    return {};
  }();
  if (!handed_out.has_value()) turn_trouble_ = handed_out.error().message;
  return handed_out;
}

/// Which leases are needed is known once all that was found at the start is taken up. True: what
/// nobody needs is gone, the guard is next.
Result<bool> OutputDirectory::keep_leases() {
  if (!taken_up_) return false;
  if (sightings_.empty()) {
    Slice slice(around_);
    EVALCAR_RETURN_IF_ERROR(averages_.step(run_.id(), recorder_.torn_steps(), slice));
    EVALCAR_RETURN_IF_ERROR(best_.step(run_.id(), slice));
  }
  // Before any lease is given up for lack of space: theirs go first, or to the row that is wanted
  // now.
  if (!unwanted_.ended()) {
    Slice slice(around_);
    EVALCAR_ASSIGN_OR_RETURN(const bool one_waits, unwanted_.end(run_.id(), slice));
    if (one_waits) last_news_ = around_.clock.monotonic_now();
    if (!unwanted_.ended()) return false;
  }
  // Before the guard: what nobody needs makes room, too.
  if (const MonotonicTime now = around_.clock.monotonic_now(); leftovers_.wait(now)) {
    Slice slice(around_);
    EVALCAR_RETURN_IF_ERROR(leftovers_.remove(
        now,
        [this](const std::string& name) {
          return averages_.keeps_name(name) || kept_.may_hold(name);
        },
        slice));
    if (leftovers_.wait(around_.clock.monotonic_now())) return false;  // cut
  }
  return true;
}

Status OutputDirectory::guard_disk() {
  if (!run_.known() || run_.unsure() || !taken_up_) return {};
  Slice slice(around_);
  return guard_.step(run_.id(), slice);
}

/// Also of a training that ends without a checkpoint.
void OutputDirectory::look_at_end() {
  if (end_.since().has_value()) return;
  const bool at_last_step = settings_.watch.exit_at_max_steps && !view_.complete.empty() &&
                            wanted_.ends_training(view_.complete.rbegin()->first.first);
  end_.step(at_last_step);
  if (end_.since().has_value()) watcher_.rescan();  // for what it wrote last
}

/// A training that began to save with accelerate's own names where we were at home already. Only a
/// start can move: whoever reads a lease must have let go of it.
void OutputDirectory::look_at_home() {
  const MonotonicTime now = around_.clock.monotonic_now();
  if (home_.beside() || must_begin_anew_ || now < home_look_at_) return;
  home_look_at_ = now + settings_.watch.poll_interval;
  if (!checkpoint::is_kept_by_accelerate(around_.files, path_, settings_.watch.pattern) || silent())
    return;
  misplaced_ = home_.path +
               ": accelerate began to keep its checkpoints beside it, and fails on every other "
               "entry; it is moved out of the way";
  spdlog::error("{}", misplaced_);
  interrupt_active("evalcar's folder is moved");
  must_begin_anew_ = true;
  last_news_ = now;
}

bool OutputDirectory::training_over() const {
  return end_.since().has_value() &&
         around_.clock.monotonic_now() - *end_.since() >= settings_.watch.poll_interval;
}

Result<bool> OutputDirectory::take_up_last() {
  if (silence_.lasts()) return false;
  if (!run_.known() || run_.unsure() || view_.complete.empty()) return false;
  const std::int64_t step = view_.complete.rbegin()->first.first;
  if (wanted_.last() == step) return false;
  wanted_.set_last(step);
  const auto sightings = view_.complete;  // recording changes it
  for (const auto& [key, seen] : sightings) {
    if (key.first == step) EVALCAR_RETURN_IF_ERROR(recorder_.record(seen));
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           store_->read().evaluations({.run_id = run_.id(), .step = step}));
  const bool waits = std::any_of(rows.begin(), rows.end(), [this](const state::Evaluation& row) {
    return is_open(row.state) && wanted_.matches(row);
  });
  if (waits) last_news_ = around_.clock.monotonic_now();
  return waits;
}

bool OutputDirectory::silent() {
  const Silence::Answer answer = silence_.look();
  if (answer == Silence::Answer::kAgain) {
    watcher_.rescan();
    averages_.look_again();
  }
  if (answer == Silence::Answer::kNoForLong) interrupt_active("its file system does not answer");
  return silence_.lasts();
}

/// In every turn: people wait for an answer.
void OutputDirectory::take_requests() {
  const std::size_t carried_out =
      inbox_.step([this](const request::Request& asked) { return answers_.to(asked); });
  if (carried_out > 0) last_news_ = around_.clock.monotonic_now();
}

/// What is there is known, and so is which of it is the newest.
bool OutputDirectory::looked_at() const {
  return run_.known() && !run_.unsure() && sightings_.empty() && !silence_.lasts() &&
         !is_beginning();
}

Status OutputDirectory::record_sightings() {
  Slice slice(around_);
  EVALCAR_ASSIGN_OR_RETURN(const bool recorded, sightings_.record(slice));
  if (recorded) last_news_ = around_.clock.monotonic_now();
  if (recorded) guard_.look_again();
  if (!sightings_.empty()) return {};
  if (vanished_ended_ || !watcher_.looked() || !watcher_.trouble().empty()) return {};
  EVALCAR_RETURN_IF_ERROR(recorder_.end_vanished(slice));
  vanished_ended_ = !slice.was_cut();
  return {};
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
  return watcher_.trouble().empty() && !(taken_up_ && vanished_ended_ && unwanted_.ended());
}

/// A slice was cut: the next turn comes at once.
bool OutputDirectory::is_cut_short() const {
  if (!run_.known() || run_.unsure()) return false;
  if (!sightings_.empty() || is_beginning()) return true;
  return taken_up_ && (averages_.due() || best_.trimming() || guard_.due());
}

milliseconds OutputDirectory::until_due() const {
  if (silence_.lasts()) return std::min(inbox_.until_due(), kSilentPause);
  auto due = std::min(watcher_.until_due(), inbox_.until_due());
  const MonotonicTime now = around_.clock.monotonic_now();
  const auto until = [now](MonotonicTime time) {
    return std::chrono::ceil<milliseconds>(time - now);
  };
  if (status_.is_behind(last_news_)) due = std::min(due, until(status_.due(last_news_)));
  if (!sightings_.empty() || is_cut_short() || run_.unsure()) due = std::min(due, until(retry_at_));
  if (leftovers_.there() && run_.known()) {
    due = std::min(due, until(std::max(retry_at_, leftovers_.not_before())));
  }
  if (const auto memory = unfinished_.due(); memory.has_value() && run_.known()) {
    due = std::min(due, until(std::max(retry_at_, *memory)));
  }
  if (end_.watches()) due = std::min<milliseconds>(due, kEndPause);
  if (const auto renewal = run_.renewal_due(); renewal.has_value()) {
    due = std::min(due, until(std::max(retry_at_, *renewal)));
  }
  if (const auto look = snapshots_.due(); look.has_value()) {
    due = std::min(due, until(std::max(retry_at_, *look)));
  }
  if (publishing_.pending() && run_.known()) {
    due = std::min(due, until(std::max(retry_at_, publishing_.due())));
  }
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
  if (!taken_up_) {
    // First: what is kept and told as the best depends on it.
    if (const auto configured = wanted_.configured(); configured.has_value()) {
      EVALCAR_RETURN_IF_ERROR(store_->set_configured(run_.id(), *configured));
    }
    Slice slice(around_);
    EVALCAR_RETURN_IF_ERROR(recorder_.take_up_run(slice));
    if (!slice.was_cut()) {
      EVALCAR_RETURN_IF_ERROR(adopt_leases(
          around_.files, *store_, stage_, wanted_, run_.run(),
          {path_, settings_.watch.pattern, settings_.evaluate.base_model}, adopted_, slice));
    }
    taken_up_ = !slice.was_cut();
  }
  return run_.begun() ? run_.ensure_home() : Status();
}

void OutputDirectory::forget_run() {
  interrupt_active("its output directory went");
  sightings_.forget();
  view_ = {};
  recorder_.forget();
  snapshots_.forget();
  unfinished_.forget();
  completion_.look_again();
  leases_.forget();
  averages_.forget();
  best_.forget();
  wanted_.forget();
  taken_up_ = vanished_ended_ = false;
  unwanted_.look_again();
  adopted_.clear();
  waiting_.look_again();
}

/// Whatever it measures cannot be finished here now.
void OutputDirectory::interrupt_active(const std::string& why) {
  if (!in_flight_.active.has_value()) return;
  const auto row = store_->read().evaluation(*in_flight_.active);
  if (row.has_value() &&
      (row->state == EvaluationState::kLoading || row->state == EvaluationState::kEvaluating)) {
    const Status back =
        store_->transition(row->id, EvaluationState::kLeased, "interrupted: " + why);
    if (!back.has_value()) spdlog::warn("{}", back.error().message);
  }
  in_flight_.superseded.insert(*in_flight_.active);
}

// ---- evaluations

Result<std::vector<schedule::Candidate>> OutputDirectory::waiting() {
  if (!run_.known() || run_.unsure() || silence_.lasts() || is_beginning()) {
    waiting_.skip();
    return std::vector<schedule::Candidate>();
  }
  EVALCAR_ASSIGN_OR_RETURN(auto look, waiting_.look(run_.id(), unwanted_.ended()));
  if (look.unwanted) unwanted_.look_again();  // the next turn ends them
  return std::move(look.candidates);
}

Result<std::optional<request::JobNews>> OutputDirectory::look_at_job(const request::JobPlan& plan,
                                                                     bool first) {
  if (!run_.known() || run_.unsure() || silence_.lasts() || !sightings_.empty() || is_beginning()) {
    return std::optional<request::JobNews>();
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint, requested_.knows(plan));
  if (!checkpoint) return std::optional<request::JobNews>();
  EVALCAR_ASSIGN_OR_RETURN(auto news, requested_.look(plan, first));
  if (first && news.has_value()) last_news_ = around_.clock.monotonic_now();  // it may wait now
  return news;
}

Result<std::optional<state::Evaluation>> OutputDirectory::requested_row(
    const request::JobPlan& plan) const {
  return requested_.own_row(plan);
}

Status OutputDirectory::keep_requested(std::set<std::int64_t> wanted,
                                       const std::set<std::int64_t>& given_up) {
  if (requested_.keep_open(std::move(wanted))) {
    waiting_.look_again();  // it waits since a job asks for it
    last_news_ = around_.clock.monotonic_now();
  }
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

Result<bool> OutputDirectory::supersede(const std::vector<std::int64_t>& evaluations) {
  Slice slice(around_);
  for (const std::int64_t id : evaluations) {
    if (slice.was_cut()) return false;
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_->read().evaluation(id));
    EVALCAR_RETURN_IF_ERROR(
        end_evaluation(*store_, id, EvaluationState::kSuperseded, std::string(kNewerCame)));
    leases_.release(row);
    (void)slice.over();
  }
  return true;
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
  const bool given_up = publishing_.failing();
  if (!sightings_.empty() || is_beginning() || (publishing_.pending() && !given_up) ||
      !watcher_.settled() || (taken_up_ && !best_.settled()))
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

Result<Tally> OutputDirectory::tally() const {
  if (!run_.known()) return Tally();
  return tally_of(store_->read(), wanted_, run_.id());
}

void OutputDirectory::write_status(const publish::AgentFacts& facts, bool now) {
  if (!now && around_.clock.monotonic_now() < status_.due(last_news_)) return;
  publish::AgentFacts mine = facts;
  mine.latest_step = view_.newest_step();
  mine.pinned = pins_.steps();
  const watch::WatchMode mode = watcher_.mode();
  const double poll_s = std::chrono::duration<double>(settings_.watch.poll_interval).count();
  mine.watching = {mode.file_system, mode.notices ? "notices and polling" : "polling", poll_s,
                   silence_.reason().empty() ? mode.reason : silence_.reason()};
  const auto warn = [&mine](const std::string& text) {
    if (!text.empty()) mine.warning += (mine.warning.empty() ? "" : "; ") + text;
  };
  warn(store_->set_aside());
  if (run_.recalled() > 0) {
    warn(std::to_string(run_.recalled()) +
         " published evaluations were taken from the files, since the database did not know them");
  }
  warn(misplaced_);
  warn(run_.home_trouble());
  warn(turn_trouble_);
  warn(posting_->trouble());
  warn(snapshots_.missed());
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
