#include "agent/run/directory_parts.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "agent/run/agent_facts.h"
#include "store/base/stale_temporaries.h"
#include "store/checkpoint/output_place.h"
#include "store/state/location.h"

namespace evalcar::run {
namespace {

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

Result<DirectoryParts::Opened> DirectoryParts::open(const Surroundings& around,
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
  // Whoever moves it may do so in the moment before we write.
  around.files.leave_to_owner(path);
  around.files.leave_to_owner(parent_path(home.path));
  return Opened{path, home, std::move(store), std::move(posting),
                moved.has_value() ? std::string() : moved.error().message};
}

DirectoryParts::DirectoryParts(const Surroundings& around, const config::Settings& settings,
                               Opened opened, std::function<bool()> looked_at)
    : around_(around),
      settings_(settings),
      path_(std::move(opened.path)),
      home_(std::move(opened.home)),
      store_(std::move(opened.store)),
      notifier_(around.make_notifier()),
      watcher_(around.files, around.clock, *notifier_, watch_options(settings, path_)),
      stage_(around.files, join_path(home_.path, "leases"), around.stopping),
      pinned_(around.files, join_path(home_.path, "pinned"), around.stopping),
      wanted_(around.files, settings.evaluate, store_->read(), view_),
      space_(around.files, settings.limits, view_, path_),
      averages_(around.clock, *store_, stage_, wanted_, space_, view_, kept_),
      best_(around, settings.publish, *store_, stage_, space_, averages_, view_, kept_),
      leases_(around.clock, *store_, stage_, watcher_, space_, averages_, best_, view_),
      pins_(around.files, store_->read(), stage_, pinned_, space_, view_),
      guard_(around.clock, *store_, stage_, settings.evaluate.policy, wanted_, space_, in_flight_,
             averages_, best_, leases_, pins_),
      completion_(*store_, settings.evaluate, wanted_, leases_, view_),
      run_(around, *store_, stage_, averages_, best_, path_, home_, settings.watch.pattern,
           settings.publish.dir),
      take_up_(around, settings, *store_, stage_, run_, wanted_, leases_),
      recorder_(around.files, *store_, run_, wanted_, leases_, view_, in_flight_,
                links_to_results(settings, home_)),
      sightings_(run_, recorder_, averages_, best_),
      snapshots_(around, settings, *store_, run_, recorder_, leases_, view_),
      last_step_(around, wanted_, view_, path_),
      unfinished_(*store_, around.clock, watcher_),
      publishing_(around, settings, *store_, run_, view_),
      posting_(std::move(opened.posting)),
      requested_(around.files, *store_, run_, wanted_, leases_, publishing_, view_, watcher_),
      unwanted_(*store_, wanted_, leases_),
      leftovers_(*store_, stage_),
      needed_(around, averages_, best_, kept_, unwanted_, leftovers_),
      waiting_(around.clock, settings.limits, store_->read(), wanted_, requested_),
      outcomes_(around.clock, settings.limits, *store_, leases_, completion_),
      status_(around.files, around.clock, *store_, settings.publish),
      silence_(around.files, around.clock, path_),
      end_(around.files, around.clock, settings.watch, path_),
      inbox_(around.files, around.clock, around.make_notifier(),
             request::folder_of(store_->path())),
      answers_({around, *store_, run_, wanted_, recorder_, view_, leases_, pins_, in_flight_},
               std::move(looked_at)),
      misplaced_(around.files, around.clock, settings.watch, path_, home_) {
  misplaced_.tell(std::move(opened.misplaced));
}

void DirectoryParts::add_facts(publish::AgentFacts& facts, const std::string& turn_trouble) {
  facts.latest_step = view_.newest_step();
  facts.pinned = pins_.steps();
  const watch::WatchMode mode = watcher_.mode();
  const double poll_s = std::chrono::duration<double>(settings_.watch.poll_interval).count();
  facts.watching = {mode.file_system, mode.notices ? "notices and polling" : "polling", poll_s,
                    silence_.reason().empty() ? mode.reason : silence_.reason()};
  add_sentence(facts.hindrance, hindrance(turn_trouble));
  const auto warn = [&facts](const std::string& text) { add_sentence(facts.warning, text); };
  warn(store_->set_aside());
  if (run_.recalled() > 0) {
    warn(std::to_string(run_.recalled()) +
         " published evaluations were taken from the files, since the database did not know them");
  }
  warn(misplaced_.why());
  warn(run_.home_trouble());
  warn(watcher_.elsewhere());
  warn(turn_trouble);
  warn(posting_->trouble());
  warn(snapshots_.missed());
}

std::string DirectoryParts::hindrance(const std::string& turn_trouble) const {
  if (!silence_.reason().empty()) return silence_.reason();
  std::string all;
  if (watcher_.looked()) add_sentence(all, watcher_.trouble());
  // Without a folder of ours checkpoints are read in place, and published elsewhere.
  const bool has_no_place = !run_.home_ready() && settings_.publish.dir.empty();
  if (has_no_place) add_sentence(all, run_.home_trouble());
  add_sentence(all, turn_trouble);
  return all;
}

}  // namespace evalcar::run
