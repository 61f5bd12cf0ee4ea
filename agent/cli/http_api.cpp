#include "agent/cli/http_api.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/cli/small_commands.h"
#include "agent/run/evaluation_settings.h"
#include "evaluator/tasks/task_file.h"

namespace evalcar::cli {
namespace {

/// Read once: the server's thread touches no file of the user's.
Result<std::vector<std::string>> task_names(const FileSystem& files, const std::string& dir) {
  EVALCAR_ASSIGN_OR_RETURN(const auto list, tasks::list_tasks(files, dir));
  std::vector<std::string> names;
  for (const tasks::TaskFile& task : list) names.push_back(task.name);
  std::sort(names.begin(), names.end());
  return names;
}

http::Sources sources(const FileSystem& files, const Clock& clock, const config::Settings& settings,
                      http::Jobs* jobs, http::Merges* merges, http::ReadRoutes* read) {
  const auto names = task_names(files, settings.evaluate.tasks_dir);
  http::EvaluateRules rules{.places = http::Places(files, settings.server.allowed_roots.empty()
                                                              ? settings.watch.output_dir
                                                              : settings.server.allowed_roots),
                            .tasks = names.has_value() ? *names : std::vector<std::string>(),
                            .configured = run::evaluation_settings(settings.evaluate),
                            .dtype = settings.evaluate.dtype,
                            .gpu_memory_utilization = settings.evaluate.gpu_memory_utilization};
  return {clock, [names] { return names; }, model_names(), jobs, merges, std::move(rules), read};
}

}  // namespace

Result<std::unique_ptr<HttpApi>> HttpApi::start(FileSystem& files, const Clock& clock,
                                                const config::Settings& settings,
                                                const std::string& book) {
  EVALCAR_ASSIGN_OR_RETURN(const http::ServerPlan plan, http::plan_server(files, settings.server));
  if (!plan.serves()) return std::unique_ptr<HttpApi>();
  std::unique_ptr<HttpApi> api(new HttpApi(clock));
  EVALCAR_ASSIGN_OR_RETURN(auto opened, state::JobBook::open(files, book));
  if (!opened->set_aside().empty())
    spdlog::error("jobs of before are lost: {}", opened->set_aside());
  EVALCAR_ASSIGN_OR_RETURN(api->jobs_, http::Jobs::begin(clock, api->desk_, std::move(opened)));
  api->merges_ = std::make_unique<http::Merges>(std::vector<std::string>{
      files.real_path("/proc/self/exe").value_or("evalcar"), "merge-request"});
  api->routes_ = std::make_unique<http::Routes>(
      sources(files, clock, settings, api->jobs_.get(), api->merges_.get(), &api->read_));
  EVALCAR_ASSIGN_OR_RETURN(
      api->server_,
      http::Server::start(plan, [routes = api->routes_.get()](const http::Request& request,
                                                              const http::Respond& respond) {
        routes->handle(request, respond);
      }));
  api->desk_.on_news([self = api.get()] {
    if (self->told_.exchange(true)) return;
    self->server_->post([self] {
      self->told_ = false;
      self->jobs_->take_news();
    });
  });
  return api;
}

void HttpApi::take_up(const FileSystem& files, const Clock& clock,
                      const config::Settings& settings) {
  server_->post([this, next = sources(files, clock, settings, jobs_.get(), merges_.get(), &read_)] {
    routes_->take_up(next);
  });
}

HttpApi::~HttpApi() {
  desk_.on_news(nullptr);
  server_.reset();  // before whom it asks
}

}  // namespace evalcar::cli
