#include "agent/http/jobs.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "agent/http/routes.h"
#include "agent/publish/utc.h"
#include "store/base/text.h"

namespace evalcar::http {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::chrono::seconds kProgressPause{60};
constexpr std::int64_t kTrimEvery = 100;

Response json_response(const OrderedJson& value, unsigned status = 200) {
  Response response;
  response.status = status;
  response.body = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return response;
}

OrderedJson local_time(const std::string& utc) {
  return utc.empty() ? OrderedJson() : OrderedJson(naive_local_time(publish::parse_utc(utc)));
}

OrderedJson parsed(const std::string& text) {
  OrderedJson value = text.empty() ? OrderedJson() : OrderedJson::parse(text, nullptr, false);
  return value.is_discarded() ? OrderedJson() : value;
}

Response not_found(const std::string& id) {
  return error_response(404, "Job " + printable(id.substr(0, 80)) + " not found");
}

OrderedJson progress_of(const request::JobNews& news) {
  OrderedJson progress = {
      {"stage", news.stage},
      {"task", news.task},
      {"done", news.done},
      {"total", news.total},
      {"fraction",
       news.total > 0 ? static_cast<double>(news.done) / static_cast<double>(news.total) : 0.0}};
  progress["eta_s"] = news.eta_s >= 0 ? OrderedJson(news.eta_s) : OrderedJson();
  return progress;
}

/// "docvqa_val/anls 0.7120": for the log.
std::string scores_of(const std::string& details) {
  const OrderedJson json = parsed(details);
  std::string text;
  if (!json.is_object() || !json.contains("metrics")) return text;
  for (const auto& [task, metrics] : json["metrics"].items()) {
    for (const auto& [name, value] : metrics.items()) {
      if (!value.is_number() || name.ends_with("_stderr")) continue;
      text += (text.empty() ? "" : ", ") + task + "/" + name + " " +
              std::to_string(value.get<double>()).substr(0, 6);
    }
  }
  return text;
}

}  // namespace

std::string new_job_id() {
  std::array<unsigned char, 16> bytes{};
  (void)!::getrandom(bytes.data(), bytes.size(), 0);  // of 16 bytes it gives all
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) id.push_back('-');
    id.push_back(kDigits[bytes[i] >> 4]);
    id.push_back(kDigits[bytes[i] & 0x0f]);
  }
  return id;
}

bool is_job_id(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (dash ? text[i] != '-' : !digit) return false;
  }
  return true;
}

Result<std::unique_ptr<Jobs>> Jobs::begin(const Clock& clock, request::JobDesk& desk,
                                          std::unique_ptr<state::JobBook> book, JobLimits limits) {
  std::unique_ptr<Jobs> jobs(new Jobs(clock, desk, std::move(book), limits));
  EVALCAR_RETURN_IF_ERROR(jobs->load());
  return jobs;
}

Status Jobs::load() {
  EVALCAR_RETURN_IF_ERROR(book_->trim(limits_.ended));
  EVALCAR_ASSIGN_OR_RETURN(completed_, book_->count("completed"));
  EVALCAR_ASSIGN_OR_RETURN(failed_, book_->count("failed"));
  EVALCAR_ASSIGN_OR_RETURN(const auto open, book_->open_jobs());
  for (state::JobRow row : open) {
    auto plan = request::decode_plan(row.plan);
    if (!plan.has_value()) {
      row.status = "failed";
      row.error = plan.error().message;
      row.completed_at = format_utc(clock_.wall_now());
      EVALCAR_RETURN_IF_ERROR(book_->update(row));
      ++failed_;
      continue;
    }
    note(row);
    desk_.submit(std::move(plan).value());
  }
  if (!open.empty()) spdlog::info("{} jobs of before go on", open.size());
  return {};
}

/// Where an open job stands.
void Jobs::note(const state::JobRow& row) {
  queued_.erase(row.number);
  running_.erase(row.number);
  if (row.ended()) {
    numbers_.erase(row.id);
    latest_.erase(row.id);
    told_.erase(row.id);
    return;
  }
  numbers_[row.id] = row.number;
  (row.status == "queued" ? queued_ : running_)[row.number] = row.id;
}

Response Jobs::submit(Wish wish, const Peer& client) {
  take_news();
  // Running ones count: any number of jobs may ask for the numbers that are being measured.
  const std::int64_t open = queued() + static_cast<std::int64_t>(running_.size());
  if (open >= limits_.open) {
    Response full = error_response(429, "the queue is full (" + std::to_string(open) + " jobs)");
    full.fields.emplace_back("Retry-After", "60");
    return full;
  }
  state::JobRow row;
  row.id = wish.plan.id = new_job_id();
  row.status = "queued";
  row.created_at = format_utc(clock_.wall_now());
  row.request = wish.request;
  row.plan = request::encode(wish.plan);
  if (!wish.notes.empty()) {
    row.details = OrderedJson{{"notes", wish.notes}}.dump(-1, ' ', false,
                                                          OrderedJson::error_handler_t::replace);
  }
  if (const Status added = book_->add(row); !added.has_value()) {
    spdlog::error("a job could not be remembered: {}", added.error().message);
    return error_response(503, "the job cannot be remembered now: " + added.error().message);
  }
  std::string tasks;
  for (const std::string& task : wish.plan.settings.tasks) {
    tasks.append(tasks.empty() ? "" : ",").append(task);
  }
  spdlog::info("job {}: {} {}, {} (from {})", row.id, printable(wish.plan.checkpoint),
               wish.plan.kind, printable(tasks), client.text());
  for (const std::string& text : wish.notes) spdlog::warn("job {}: {}", row.id, text);
  note(row);
  const std::int64_t before = queued() - 1;
  desk_.submit(std::move(wish.plan));
  return json_response(
      {{"job_id", row.id},
       {"status", "queued"},
       {"position_in_queue", before},
       {"message", "Job queued successfully. Position in queue: " + std::to_string(before)}});
}

Response Jobs::info(const std::string& id) {
  if (!is_job_id(id)) return not_found(id);
  take_news();
  const auto found = book_->find(id);
  if (!found.has_value()) return error_response(503, found.error().message);
  if (!found->has_value()) return not_found(id);
  const state::JobRow& row = **found;
  std::int64_t position = row.position;
  if (row.status == "queued") {
    position = std::distance(queued_.begin(), queued_.lower_bound(row.number));
  }
  OrderedJson info = {{"job_id", row.id},
                      {"status", row.status},
                      {"created_at", local_time(row.created_at)},
                      {"started_at", local_time(row.started_at)},
                      {"completed_at", local_time(row.completed_at)},
                      {"request", parsed(row.request)},
                      {"result", parsed(row.result)},
                      {"error", row.error.empty() ? OrderedJson() : OrderedJson(row.error)},
                      {"position_in_queue", position}};
  const OrderedJson details = parsed(row.details);
  if (details.is_object()) info.update(details);
  if (const auto latest = latest_.find(id); latest != latest_.end()) {
    if (!latest->second.stage.empty()) info["progress"] = progress_of(latest->second);
    if (!latest->second.reason.empty()) info["reason"] = latest->second.reason;
  }
  return json_response(info);
}

Response Jobs::cancel(const std::string& id) {
  if (!is_job_id(id)) return not_found(id);
  take_news();
  auto found = book_->find(id);
  if (!found.has_value()) return error_response(503, found.error().message);
  if (!found->has_value()) return not_found(id);
  state::JobRow row = std::move(**found);
  if (row.ended()) return error_response(400, "Job already finished or cancelled");
  row.status = "cancelled";
  row.completed_at = format_utc(clock_.wall_now());
  if (const Status written = book_->update(row); !written.has_value()) {
    return error_response(503, written.error().message);
  }
  note(row);
  desk_.cancel(id);
  spdlog::info("job {}: cancelled", id);
  return json_response({{"message", "Job " + id + " cancelled"}});
}

Response Jobs::queue() const {
  OrderedJson ids = OrderedJson::array();
  for (const auto& [number, id] : queued_) ids.push_back(id);
  return json_response(
      {{"queue_size", queued()},
       {"running_job", running_.empty() ? OrderedJson() : OrderedJson(running_.begin()->second)},
       {"queued_jobs", std::move(ids)},
       {"completed_jobs", completed_},
       {"failed_jobs", failed_}});
}

void Jobs::take_news() {
  for (request::JobNews& news : desk_.take_news()) unwritten_[news.id] = std::move(news);
  auto pending = std::exchange(unwritten_, {});
  for (const auto& [id, news] : pending) take(news);
}

/// What a client was told to be over stays over, whatever the loop says of it afterwards.
void Jobs::take(const request::JobNews& news) {
  const auto number = numbers_.find(news.id);
  if (number == numbers_.end()) return;
  const bool was_running = running_.contains(number->second);
  if (!news.ended() && was_running == (news.status == "running")) {
    latest_[news.id] = news;
    return log_progress(news);
  }
  auto found = book_->find(news.id);
  if (!found.has_value() || !found->has_value()) {
    if (!found.has_value()) unwritten_[news.id] = news;
    return;
  }
  state::JobRow row = std::move(**found);
  row.status = news.status;
  const std::string now = format_utc(clock_.wall_now());
  if (news.status == "running" && row.started_at.empty()) row.started_at = now;
  if (news.ended()) {
    if (row.started_at.empty()) row.started_at = now;
    row.completed_at = now;
    row.result = news.result;
    if (news.status == "failed") row.error = news.reason;
    OrderedJson details = parsed(row.details);
    if (!details.is_object()) details = OrderedJson::object();
    if (const OrderedJson more = parsed(news.details); more.is_object()) details.update(more);
    row.details = details.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  if (const Status written = book_->update(row); !written.has_value()) {
    spdlog::error("job {}: {}", news.id, written.error().message);
    unwritten_[news.id] = news;
    return;
  }
  latest_[news.id] = news;
  note(row);
  if (!news.ended()) return;
  if (news.status == "completed") {
    ++completed_;
    const double seconds = std::chrono::duration<double>(publish::parse_utc(row.completed_at) -
                                                         publish::parse_utc(row.started_at))
                               .count();
    spdlog::info("job {}: completed in {:.1f} s: {}", news.id, seconds,
                 printable(scores_of(news.details)));
  } else if (news.status == "failed") {
    ++failed_;
    spdlog::error("job {}: failed: {}", news.id, printable(news.reason));
  }
  if (++ended_ % kTrimEvery == 0) (void)book_->trim(limits_.ended);
}

void Jobs::log_progress(const request::JobNews& news) {
  if (news.total <= 0) return;
  Told& told = told_[news.id];
  const std::int64_t tenth = news.done * 10 / news.total;
  const MonotonicTime now = clock_.monotonic_now();
  if (tenth == told.tenth && now - told.at < kProgressPause) return;
  told = {tenth, now};
  const std::string where = news.task.empty() ? news.stage : news.stage + " " + news.task;
  spdlog::info("job {}: {} {}/{}{}", news.id, printable(where), news.done, news.total,
               news.eta_s >= 0
                   ? ", " + std::to_string(static_cast<std::int64_t>(news.eta_s)) + " s to go"
                   : "");
}

}  // namespace evalcar::http
