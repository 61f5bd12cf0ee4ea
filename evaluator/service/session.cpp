#include "evaluator/service/session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <iostream>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "evaluator/service/weights_source.h"
#include "store/base/text.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/plan_warnings.h"

#ifndef EVALCAR_VERSION
#error "EVALCAR_VERSION comes from the build"
#endif

namespace evalcar::service {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{500};
constexpr std::size_t kMaxRememberedCancels = 1000;

double seconds_since(const Clock& clock, MonotonicTime start) {
  return std::chrono::duration<double>(clock.monotonic_now() - start).count();
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Of an evaluation none of whose tasks stands: each one's reason; the kind is the first's, unless
/// another can be repaired from outside.
protocol::JobError error_of(const std::vector<protocol::TaskResult>& tasks, const std::string& id,
                            const std::string& stage) {
  protocol::JobError error{.id = id, .kind = tasks.front().error_kind, .stage = stage};
  for (const protocol::TaskResult& task : tasks) {
    const bool named = task.error.starts_with(task.task);
    error.message +=
        (error.message.empty() ? "" : "\n") + (named ? "" : task.task + ": ") + task.error;
    if (protocol::is_of_surroundings(task.error_kind)) error.kind = task.error_kind;
  }
  return error;
}

bool has_no_error(const protocol::TaskResult& task) { return task.error.empty(); }

}  // namespace

std::string job_error_kind(const Error& error) {
  // As weights/device_errors.h begins its messages; what was being done may stand before that.
  struct Beginning {
    std::string_view words;
    std::string_view kind;
  };
  constexpr std::array<Beginning, 6> kBeginnings = {{{"device lost while", protocol::kDeviceLost},
                                                     {"device fault while", protocol::kDeviceFault},
                                                     {"device busy while", protocol::kDeviceBusy},
                                                     {"device busy: ", protocol::kDeviceBusy},
                                                     {"no CUDA device", protocol::kNoDevice},
                                                     {"out of memory", protocol::kOutOfMemory}}};
  for (const Beginning& beginning : kBeginnings) {
    if (contains(error.message, beginning.words)) return std::string(beginning.kind);
  }
  return std::string(error_code_name(error.code));
}

Session::Session(int fd, std::unique_ptr<engine::Engine> engine, engine::DeviceDescription device,
                 const FileSystem& files, const Clock& clock, const Kept& kept)
    : engine_(std::move(engine)),
      device_(std::move(device)),
      files_(files, pulse_),
      clock_(clock),
      kept_(kept),
      reader_([this, &files](const protocol::Prefetch& wanted, std::stop_token stop) {
        return read_ahead(files, wanted, std::move(stop));
      }),
      channel_(fd, [this](const protocol::Message& message) { on_urgent(message); }) {}

int Session::run() {
  channel_.send(protocol::Hello{.version = EVALCAR_VERSION,
                                .device = device_.device,
                                .device_name = device_.name,
                                .torch_version = device_.torch_version,
                                .warning = device_.warning});
  const std::jthread heart([this](std::stop_token stop) { heartbeat(std::move(stop)); });
  while (true) {
    const protocol::Message message = channel_.receive();
    if (std::holds_alternative<protocol::Bye>(message)) return 0;
    if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
      if (hello->protocol != protocol::kProtocolVersion) {
        send_error("", "hello",
                   make_error(ErrorCode::kUnsupported,
                              "the agent speaks protocol " + std::to_string(hello->protocol) +
                                  ", expected " + std::to_string(protocol::kProtocolVersion) +
                                  ": install both programs together"));
        return 1;
      }
    } else if (const auto* load = std::get_if<protocol::Load>(&message)) {
      guarded(load->id, "loading", [&] { handle(*load); });
    } else if (const auto* answered = std::get_if<protocol::Answered>(&message)) {
      known_[{answered->task, answered->fingerprint, answered->doc_id}] = {
          .doc_id = answered->doc_id,
          .text = answered->text,
          .output_tokens = answered->output_tokens,
          .cut_off = answered->cut_off};
    } else if (const auto* evaluate = std::get_if<protocol::Evaluate>(&message)) {
      guarded(evaluate->id, "evaluating", [&] { handle(*evaluate); });
      known_.clear();
    }
  }
}

// Libraries report what they did not expect by exceptions (a bad_alloc anywhere): one of them is
// the end of a job, not of the process.
template <typename F>
void Session::guarded(const std::string& id, const std::string& stage, F&& job) {
  try {
    std::forward<F>(job)();
  } catch (const std::bad_alloc&) {
    end();
    send_error(id, stage, make_error(ErrorCode::kUnavailable, "out of memory while " + stage));
  } catch (const std::exception& error) {
    end();
    send_error(id, stage, make_error(ErrorCode::kInternal, stage + ": " + error.what()));
  }
}

void Session::on_urgent(const protocol::Message& message) {
  if (const auto* const prefetch = std::get_if<protocol::Prefetch>(&message)) {
    return reader_.read(*prefetch);
  }
  const auto* const cancel = std::get_if<protocol::Cancel>(&message);
  if (cancel == nullptr) gone_ = true;  // bye: also for a job that starts after this
  jobs_.with([&](Jobs& jobs) {
    if (cancel != nullptr && jobs.cancelled.size() < kMaxRememberedCancels)
      jobs.cancelled.insert(cancel->id);
    if (jobs.running.has_value() && (cancel == nullptr || cancel->id == jobs.running->id)) {
      jobs.running->stop.request_stop();
    }
  });
}

std::stop_token Session::begin(const std::string& id, const std::string& stage) {
  const std::stop_token token = jobs_.with([&](Jobs& jobs) {
    jobs.running.emplace();
    jobs.running->id = id;
    jobs.running->latest.id = id;
    jobs.running->latest.stage = stage;
    std::erase_if(jobs.cancelled, [&](const std::string& other) { return other != id; });
    if (gone_ || jobs.cancelled.contains(id)) jobs.running->stop.request_stop();
    return jobs.running->stop.get_token();
  });
  tell(id, stage, "", 0, 0);
  return token;
}

void Session::end() {
  jobs_.with([](Jobs& jobs) {
    if (jobs.running.has_value()) jobs.cancelled.erase(jobs.running->id);
    jobs.running.reset();
  });
}

void Session::tell(const std::string& id, const std::string& stage, const std::string& task,
                   std::int64_t done, std::int64_t total) {
  const protocol::Progress progress{
      .id = id, .stage = stage, .task = task, .done = done, .total = total, .tick = pulse_.count()};
  jobs_.with([&](Jobs& jobs) {
    if (jobs.running.has_value()) jobs.running->latest = progress;
  });
  channel_.send(progress);
}

void Session::heartbeat(std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    wake.wait_for(lock, stop, kHeartbeat, [] { return false; });
    auto latest = jobs_.with([](Jobs& jobs) {
      return jobs.running.has_value() ? std::optional(jobs.running->latest) : std::nullopt;
    });
    if (!latest.has_value() || stop.stop_requested()) continue;
    latest->tick = pulse_.count();
    channel_.send(*latest);
  }
}

void Session::send_error(const std::string& id, const std::string& stage, const Error& error) {
  const std::string kind = job_error_kind(error);
  channel_.send(protocol::JobError{.id = id,
                                   .kind = kind,
                                   .stage = stage,
                                   .message = error.message,
                                   .retryable = error.retryable,
                                   .fatal = protocol::is_device_fault(kind)});
}

// As load_weights() will, but through `files` as they are: a pulse from here would hide that the
// evaluation hangs.
Status Session::read_ahead(const FileSystem& files, const protocol::Prefetch& wanted,
                           std::stop_token stop) const {
  EVALCAR_ASSIGN_OR_RETURN(const WeightsSource source,
                           find_weights(files, wanted.dir, wanted.weights, wanted.base_model));
  EVALCAR_ASSIGN_OR_RETURN(const checkpoint::Plan plan, plan_of(files, source));
  if (stop.stop_requested()) return make_error(ErrorCode::kCancelled, "stopped");
  return engine_->prefetch(files, plan, source.folders.config, wanted.dtype, std::move(stop));
}

bool Session::end_reading(std::chrono::milliseconds patience) { return reader_.end(patience); }

void Session::handle(const protocol::Load& load) {
  reader_.stop();  // its turn has come, or another's has: what is read in the foreground is faster
  const std::stop_token stop = begin(load.id, "loading");
  if (const auto missing = check_data(load); missing.has_value()) {
    end();
    return channel_.send(*missing);  // what is resident stays so
  }
  auto loaded = load_weights(load, stop);
  end();
  if (loaded.has_value()) return channel_.send(*loaded);
  weights_.reset();
  model_.reset();
  engine_->unload();
  send_error(load.id, "loading", loaded.error());
}

std::optional<protocol::JobError> Session::check_data(const protocol::Load& load) {
  if (!load.settings.has_value() || load.settings->tasks.empty()) return std::nullopt;
  const auto report = data_check_.check(files_, *load.settings);
  if (std::ranges::none_of(report, has_no_error)) return error_of(report, load.id, "preparing");
  for (const protocol::TaskResult& task : report) {
    if (!task.error.empty()) {
      std::cerr << "warning: " << task.task << " will have no result: " << task.error << '\n';
    }
  }
  return std::nullopt;
}

Result<protocol::Loaded> Session::load_weights(const protocol::Load& load, std::stop_token stop) {
  const MonotonicTime start = clock_.monotonic_now();
  EVALCAR_ASSIGN_OR_RETURN(const WeightsSource source,
                           find_weights(files_, load.dir, load.weights, load.base_model));
  EVALCAR_RETURN_IF_ERROR(renew_model_text(files_, source.folders, model_));
  model_->base_model = source.needs_base ? source.base_model : "";
  EVALCAR_ASSIGN_OR_RETURN(const checkpoint::Plan plan, plan_of(files_, source));
  for (const std::string& warning : checkpoint::warnings_of(files_, plan)) {
    std::cerr << "warning: " << printable(warning) << '\n';
  }
  EVALCAR_ASSIGN_OR_RETURN(engine::LoadedWeights weights,
                           engine_->load(
                               files_, plan, source.folders.config, load.dtype,
                               [&](std::uint64_t done, std::uint64_t total) {
                                 tell(load.id, "loading", "", static_cast<std::int64_t>(done),
                                      static_cast<std::int64_t>(total));
                               },
                               std::move(stop)));
  protocol::Loaded loaded{.id = load.id,
                          .weights_sha256 = weights.weights_sha256,
                          .architecture = weights.architecture,
                          .dtype = weights.dtype,
                          .tensors = weights.tensors,
                          .bytes = weights.bytes,
                          .seconds = seconds_since(clock_, start),
                          .prefetched = weights.prefetched};
  if (!weights.warning.empty()) std::cerr << "warning: " << weights.warning << '\n';
  weights_ = std::move(weights);
  return loaded;
}

void Session::handle(const protocol::Evaluate& evaluate) {
  if (!weights_.has_value()) {
    return send_error(evaluate.id, "evaluating",
                      make_error(ErrorCode::kInternal, "evaluate before any weights were loaded"));
  }
  const MonotonicTime start = clock_.monotonic_now();
  const std::stop_token stop = begin(evaluate.id, "preparing");
  EvaluationEvents events;
  events.progress = [&](const std::string& stage, const std::string& task, std::int64_t done,
                        std::int64_t total) { tell(evaluate.id, stage, task, done, total); };
  std::map<std::string, std::string> fingerprints;
  events.prepared = [&](const std::vector<protocol::TaskFingerprint>& told) {
    for (const protocol::TaskFingerprint& task : told) fingerprints[task.task] = task.sha256;
    channel_.send(protocol::Prepared{.id = evaluate.id, .tasks = told});
  };
  events.answered = [&](const std::string& task, const tasks::Response& response) {
    channel_.send(protocol::Sample{.id = evaluate.id,
                                   .task = task,
                                   .doc_id = response.doc_id,
                                   .text = response.text,
                                   .output_tokens = response.output_tokens,
                                   .fingerprint = fingerprints[task],
                                   .cut_off = response.cut_off});
  };
  events.scored = [&](const std::string& task, std::int64_t doc_id, const std::string& line,
                      const std::vector<std::string>& pictures) {
    channel_.send(protocol::Scored{.id = evaluate.id,
                                   .task = task,
                                   .doc_id = doc_id,
                                   .line = line,
                                   .fingerprint = fingerprints[task],
                                   .pictures = pictures});
  };
  events.interim = [&](protocol::Interim interim) {
    interim.id = evaluate.id;
    interim.seconds = seconds_since(clock_, start);
    channel_.send(interim);
  };
  events.advanced = [&] { pulse_.beat(); };
  auto result = run_evaluation(*engine_, *weights_, *model_, files_, kept_, evaluate, known_,
                               previous_, events, stop);
  end();
  if (!result.has_value()) return send_error(evaluate.id, "evaluating", result.error());
  const bool any_stands = std::ranges::any_of(result->tasks, has_no_error);
  if (!any_stands) return channel_.send(error_of(result->tasks, evaluate.id, "evaluating"));
  result->id = evaluate.id;
  result->seconds = seconds_since(clock_, start);
  channel_.send(*result);
}

}  // namespace evalcar::service
