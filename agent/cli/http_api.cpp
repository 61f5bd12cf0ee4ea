#include "agent/cli/http_api.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "agent/cli/small_commands.h"
#include "agent/http/known_checkpoint.h"
#include "agent/request/outbox.h"
#include "agent/run/evaluation_settings.h"
#include "evaluator/tasks/task_file.h"
#include "store/state/location.h"

namespace evalcar::cli {
namespace {

/// Read once: the server's thread touches no file of the user's.
struct TaskNames {
  std::vector<std::string> all;
  std::vector<std::string> few_shot;  // with examples by themselves
};

Result<TaskNames> task_names(const FileSystem& files, const std::string& dir) {
  EVALCAR_ASSIGN_OR_RETURN(const auto list, tasks::list_tasks(files, dir));
  TaskNames names;
  for (const tasks::TaskFile& task : list) {
    names.all.push_back(task.name);
    if (task.shots > 0) names.few_shot.push_back(task.name);
  }
  std::sort(names.all.begin(), names.all.end());
  return names;
}

/// By the database that the agent has of a checkpoint's output directory.
http::KnowsCheckpoint known_checkpoints(const FileSystem& files, const config::Settings& settings) {
  return [&files, named = settings.store.path](const std::string& checkpoint,
                                               const std::string& kind) -> Result<bool> {
    if (!named.empty()) return http::knows_checkpoint(files, named, checkpoint, kind);
    EVALCAR_ASSIGN_OR_RETURN(const std::string database,
                             state::default_database_path(files, parent_path(checkpoint)));
    return http::knows_checkpoint(files, database, checkpoint, kind);
  };
}

http::Sources sources(const FileSystem& files, const Clock& clock, const config::Settings& settings,
                      http::Jobs* jobs, http::Merges* merges, http::ReadRoutes* read,
                      http::PageRoutes* page, const publish::LiveBoard& board) {
  const auto names = task_names(files, settings.evaluate.tasks_dir);
  const auto& server = settings.server;
  std::vector<std::string> own;
  if (!settings.publish.dir.empty()) own.push_back(settings.publish.dir);
  http::Places places(
      files, server.allowed_roots.empty() ? settings.watch.output_dir : server.allowed_roots,
      std::move(own));
  http::EvaluateRules rules{
      .checkpoints = http::CheckpointPlaces(std::move(places), settings.watch.output_dir,
                                            settings.watch.pattern),
      .tasks = names.value_or(TaskNames()).all,
      .few_shot_tasks = names.value_or(TaskNames()).few_shot,
      .configured = run::evaluation_settings(settings.evaluate),
      .dtype = settings.evaluate.dtype,
      .gpu_memory_utilization = settings.evaluate.gpu_memory_utilization,
      .knows = known_checkpoints(files, settings)};
  const auto all = names.has_value() ? Result<std::vector<std::string>>(names->all)
                                     : Result<std::vector<std::string>>(names.error());
  return {clock,
          [all] { return all; },
          model_names(),
          jobs,
          merges,
          std::move(rules),
          read,
          page,
          [&board] { return board.hindrance(); }};
}

}  // namespace

HttpApi::HttpApi(FileSystem& files, const Clock& clock)
    : runs_(clock, board_),
      page_({worker_, runs_, asker_,
             [this, &files, &clock](const std::string& database, const request::Request& asked) {
               return ask_loop(files, clock, database, asked);
             },
             page::SamplePictures(files, state::sample_pictures_directory())}) {}

/// The loop of this process has the database; it is woken by the file. In the asker's thread.
Result<request::Answer> HttpApi::ask_loop(FileSystem& files, const Clock& clock,
                                          const std::string& database,
                                          const request::Request& asked) {
  request::AskOptions options;
  options.patience = std::chrono::seconds(5);
  options.agent_there = [this] {  // not once it ends
    return audience_.with([](const http::Server* server) { return server != nullptr; });
  };
  options.pause = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  return request::ask(files, clock, request::folder_of(database), asked, options);
}

/// The numbers are read by the worker, and only those that somebody looks at.
void HttpApi::tell_pages() {
  const auto listened = [this] {
    return audience_.with([](http::Server* server) {
      return server == nullptr ? std::vector<std::string>() : server->topics();
    });
  };
  if (listened().empty() || telling_.exchange(true)) return;
  const bool taken = worker_.take([this, listened] {
    telling_ = false;
    for (http::LiveRuns::News& news : runs_.news_for(listened())) {
      audience_.with([&news](http::Server* server) {
        if (server != nullptr) server->broadcast(news.run, http::event_text(news.json));
      });
    }
  });
  if (!taken) telling_ = false;  // the next heartbeat tries again
}

Result<std::unique_ptr<HttpApi>> HttpApi::start(FileSystem& files, const Clock& clock,
                                                const config::Settings& settings,
                                                const std::string& book) {
  EVALCAR_ASSIGN_OR_RETURN(const http::ServerPlan plan, http::plan_server(files, settings.server));
  if (!plan.serves()) return std::unique_ptr<HttpApi>();
  std::unique_ptr<HttpApi> api(new HttpApi(files, clock));
  // Where somebody else listens, nothing else is begun.
  EVALCAR_ASSIGN_OR_RETURN(
      api->server_, http::Server::bind(plan, [self = api.get()](const http::Request& request,
                                                                const http::Respond& respond) {
        self->routes_->handle(request, respond);
      }));
  EVALCAR_ASSIGN_OR_RETURN(
      auto opened, state::JobBook::open(files, book, settings.store.allow_network_file_system));
  if (!opened->set_aside().empty())
    spdlog::error("jobs of before are lost: {}", opened->set_aside());
  EVALCAR_ASSIGN_OR_RETURN(api->jobs_, http::Jobs::begin(clock, api->desk_, std::move(opened)));
  api->merges_ = std::make_unique<http::Merges>(std::vector<std::string>{
      files.real_path("/proc/self/exe").value_or("evalcar"), "merge-request"});
  api->routes_ = std::make_unique<http::Routes>(sources(files, clock, settings, api->jobs_.get(),
                                                        api->merges_.get(), &api->read_,
                                                        &api->page_, api->board_));
  api->desk_.on_news([self = api.get()] {
    if (self->told_.exchange(true)) return;
    self->server_->post([self] {
      self->told_ = false;
      self->jobs_->take_news();
    });
  });
  api->audience_.with([&api](http::Server*& server) { server = api->server_.get(); });
  api->board_.on_news([self = api.get()] { self->tell_pages(); });
  api->server_->serve();
  return api;
}

void HttpApi::take_up(const FileSystem& files, const Clock& clock,
                      const config::Settings& settings) {
  server_->post([this, next = sources(files, clock, settings, jobs_.get(), merges_.get(), &read_,
                                      &page_, board_)] { routes_->take_up(next); });
}

HttpApi::~HttpApi() {
  desk_.on_news(nullptr);
  board_.on_news(nullptr);
  audience_.with([](http::Server*& server) { server = nullptr; });
  server_.reset();  // before whom it asks
}

}  // namespace evalcar::cli
