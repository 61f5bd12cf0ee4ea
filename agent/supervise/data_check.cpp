#include "agent/supervise/data_check.h"

#include <nlohmann/json.hpp>

namespace evalcar::supervise {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostOutput = std::size_t{1} << 20U;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Warnings of the program may stand beside the line.
Json find_document(const std::string& output) {
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    if (output.compare(at, 9, "{\"tasks\":") == 0) {
      return Json::parse(output.substr(at, end - at), nullptr, false);
    }
    at = end + 1;
  }
  return nullptr;
}

}  // namespace

Result<DataReport> parse_data_report(const std::string& output) {
  const Json document = find_document(output);
  if (!document.is_object() || !document["tasks"].is_array()) {
    return make_error(ErrorCode::kCorruption,
                      "expected one line {\"tasks\":[…]}, seen: " + output.substr(0, 500));
  }
  DataReport report;
  for (const Json& task : document["tasks"]) {
    const std::string name = task.is_object() ? text_of(task, "task") : "";
    if (name.empty()) return make_error(ErrorCode::kCorruption, "a task without a name");
    report[name] = {text_of(task, "error"), text_of(task, "circumstances")};
  }
  return report;
}

Result<DataCheck> DataCheck::start(const std::vector<std::string>& command, const Clock& clock,
                                   std::chrono::milliseconds limit) {
  EVALCAR_ASSIGN_OR_RETURN(auto child, ChildProcess::spawn(command, -1));
  return DataCheck(std::move(child), clock, limit);
}

std::optional<Result<DataReport>> DataCheck::poll() {
  const std::optional<int> status = child_.try_wait();
  for (bool more = true; more && !ended_;) {
    const std::string bytes = read_available(child_.output(), kMostOutput, ended_);
    more = status.has_value() && !bytes.empty();
    if (output_.size() < kMostOutput) output_ += bytes;
  }
  if (!status.has_value()) {
    if (clock_->monotonic_now() < deadline_) return std::nullopt;
    child_.kill_group();
    return Result<DataReport>(
        make_error(ErrorCode::kUnavailable, "no answer in time; does storage hang?"));
  }
  auto report = parse_data_report(output_);
  if (report.has_value()) return report;
  return Result<DataReport>(make_error(
      ErrorCode::kUnavailable, describe_wait_status(*status) + ": " + report.error().message));
}

void DataCheck::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (!ended_) descriptors.push_back({child_.output(), POLLIN, 0});
}

}  // namespace evalcar::supervise
