#include "agent/webhook/courier.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/webhook/signature.h"
#include "store/base/text.h"

namespace evalcar::webhook {
namespace {

using std::chrono::milliseconds;

constexpr double kLongestRetryAfter_s = 3600;
constexpr std::size_t kMostShown = 300;  ///< of what the receiver says

/// The receiver says that this very body is wrong: another try with it cannot help for ever.
bool refuses_body(int status) { return status == 400 || status == 413 || status == 422; }

std::string describe(const Answer& answer) {
  std::string text = "the receiver answered " + std::to_string(answer.status);
  if (!answer.location.empty()) {
    const std::string place = printable(answer.location.substr(0, kMostShown));
    text += " and points to " + place + "; redirects are not followed: name that address";
  }
  return text;
}

/// A run is named after a folder, whose name may hold anything, and a header's value may not.
std::string header_text(const std::string& name) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7F && c != '%' && c != '"' && c != '\\') {
      text.push_back(c);
    } else {
      text += {'%', kHex[byte >> 4U], kHex[byte & 0xFU]};
    }
  }
  return text;
}

}  // namespace

Courier::Courier(CourierOptions options, std::unique_ptr<Poster> poster)
    : options_(std::move(options)), poster_(std::move(poster)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Courier::~Courier() { stop(); }  // before the members go that its thread uses

void Courier::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

bool Courier::take(Parcel parcel) {
  const std::scoped_lock lock(mutex_);
  if (parcels_.size() >= kMostParcels) return false;
  parcels_.push_back(std::move(parcel));
  changed_.notify_all();
  return true;
}

std::optional<std::int64_t> Courier::done() const {
  const std::scoped_lock lock(mutex_);
  return done_;
}
bool Courier::idle() const {
  const std::scoped_lock lock(mutex_);
  return parcels_.empty();
}
std::string Courier::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}
std::int64_t Courier::failures() const {
  const std::scoped_lock lock(mutex_);
  return failures_;
}

void Courier::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Parcel parcel;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !parcels_.empty(); })) return;
      parcel = parcels_.front();
    }
    deliver(parcel, stop);
  }
}

void Courier::deliver(const Parcel& parcel, const std::stop_token& stop) {
  const std::string name = header_text(parcel.run) + "/" + std::to_string(parcel.seq);
  std::vector<std::pair<std::string, std::string>> headers = {
      {"Content-Type", "application/json"},
      {"User-Agent", "evalcar/" + options_.version},
      {"X-Evalcar-Event", "result"},
      {"X-Evalcar-Delivery", name},
      {"Idempotency-Key", "\"" + name + "\""}};
  if (!options_.secret.empty()) {
    headers.emplace_back("X-Evalcar-Signature-256",
                         "sha256=" + hmac_sha256_hex(options_.secret, parcel.body));
  }
  milliseconds pause = options_.first_pause;
  std::int64_t refused = 0;
  while (!stop.stop_requested()) {
    const auto answer = poster_->post(options_.url, headers, parcel.body,
                                      [&stop] { return stop.stop_requested(); });
    if (answer.has_value() && answer->status >= 200 && answer->status < 300) {
      return finish(parcel.seq, "");
    }
    if (stop.stop_requested()) return;
    std::string trouble = answer.has_value() ? describe(*answer) : answer.error().message;
    trouble = "webhook: result " + std::to_string(parcel.seq) + ": " + trouble;
    if (answer.has_value() && refuses_body(answer->status) &&
        ++refused >= options_.tries_of_refused) {
      spdlog::error("{}; it is given up", trouble);
      return finish(parcel.seq, trouble + "; it is given up");
    }
    milliseconds wait = pause;
    if (answer.has_value() && answer->retry_after_s.has_value()) {
      const double asked = std::min(*answer->retry_after_s, kLongestRetryAfter_s);
      wait = std::max(wait, milliseconds(static_cast<std::int64_t>(asked * 1000)));
    }
    std::unique_lock lock(mutex_);
    trouble_ = trouble;
    ++failures_;
    changed_.wait_for(lock, stop, wait, [] { return false; });
    pause = std::min(2 * pause, options_.longest_pause);
  }
}

void Courier::finish(std::int64_t seq, const std::string& trouble) {
  const std::scoped_lock lock(mutex_);
  parcels_.pop_front();
  done_ = seq;
  trouble_ = trouble;
  failures_ = 0;
}

}  // namespace evalcar::webhook
