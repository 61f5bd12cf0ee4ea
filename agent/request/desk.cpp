#include "agent/request/desk.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace evalcar::request {

using OrderedJson = nlohmann::ordered_json;

std::string encode(const JobPlan& plan) {
  const OrderedJson json = {
      {"version", 1},
      {"id", plan.id},
      {"checkpoint", plan.checkpoint},
      {"kind", plan.kind},
      {"dtype", plan.dtype},
      {"settings", OrderedJson::parse(protocol::encode_settings(plan.settings), nullptr, false)},
      {"output_dir", plan.output_dir},
      {"log_samples", plan.log_samples}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Result<JobPlan> decode_plan(std::string_view text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  const auto bad = [](const char* what) {
    return make_error(ErrorCode::kCorruption, std::string("a job's plan: ") + what);
  };
  if (!json.is_object() || json.value("version", OrderedJson()) != 1)
    return bad("of another version");
  JobPlan plan;
  for (const auto& [key, member] : {std::pair{"id", &plan.id},
                                    {"checkpoint", &plan.checkpoint},
                                    {"kind", &plan.kind},
                                    {"dtype", &plan.dtype},
                                    {"output_dir", &plan.output_dir}}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return bad(key);
    *member = found->get<std::string>();
  }
  const auto samples = json.find("log_samples");
  if (samples == json.end() || !samples->is_boolean()) return bad("log_samples");
  plan.log_samples = samples->get<bool>();
  const auto settings = json.find("settings");
  if (settings == json.end()) return bad("settings");
  EVALCAR_ASSIGN_OR_RETURN(plan.settings, protocol::decode_settings(settings->dump()));
  return plan;
}

JobDesk::JobDesk() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

JobDesk::~JobDesk() {
  if (wake_ >= 0) ::close(wake_);
}

void JobDesk::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

void JobDesk::submit(JobPlan plan) {
  state_.with([&](State& state) { state.open[state.next++] = {std::move(plan), false}; });
  wake();
}

void JobDesk::cancel(const std::string& id) {
  state_.with([&](State& state) {
    for (auto& [order, job] : state.open) job.cancelled |= job.plan.id == id;
  });
  wake();
}

std::vector<JobNews> JobDesk::take_news() {
  return state_.with([](State& state) {
    std::vector<JobNews> all;
    for (auto& [id, news] : state.news) all.push_back(std::move(news));
    state.news.clear();
    return all;
  });
}

void JobDesk::on_news(std::function<void()> call) {
  state_.with([&](State& state) { state.on_news = std::move(call); });
}

std::vector<JobDesk::OpenJob> JobDesk::open_jobs() const {
  return state_.with([](const State& state) {
    std::vector<OpenJob> all;
    for (const auto& [order, job] : state.open) all.push_back(job);
    return all;
  });
}

void JobDesk::tell(JobNews news) {
  state_.with([&](State& state) {
    if (news.ended()) {
      std::erase_if(state.open, [&](const auto& job) { return job.second.plan.id == news.id; });
    }
    state.news[news.id] = std::move(news);
    if (state.on_news) state.on_news();  // under the lock: it is not taken away meanwhile
  });
}

bool JobDesk::calm() {
  std::uint64_t count = 0;
  return ::read(wake_, &count, sizeof count) == sizeof count;
}

}  // namespace evalcar::request
