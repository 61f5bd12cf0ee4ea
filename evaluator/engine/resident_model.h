// The checkpoint that is loaded: its weights at fixed addresses, the model bound to them, and
// beside them what was read ahead of the next one.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "evaluator/engine/encoded_pictures.h"
#include "evaluator/engine/prefetch.h"
#include "evaluator/models/model.h"
#include "evaluator/weights/arena.h"
#include "evaluator/weights/load.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::engine {

/// prefetch() and drop_prefetched() may be called by any thread, all else by one at a time.
class ResidentModel {
 public:
  /// `utilization`: the share of a GPU's memory that this process may use. `threads`: no more than
  /// so many read. `encoded` is told of each tower that is loaded, gives way to weights on the CPU,
  /// and must outlive this.
  ResidentModel(c10::Device device, double utilization, int threads, EncodedPictures& encoded)
      : device_(device),
        threads_(threads),
        encoded_(encoded),
        prefetch_(device, utilization, threads) {}

  struct Loaded {
    weights::LoadReport report;
    bool prefetched = false;
  };
  /// In place of what was loaded before; after an error nothing is. Errors as Engine::load()'s; may
  /// throw c10::Error, and is to be unloaded then.
  Result<Loaded> load(const FileSystem& files, const checkpoint::Plan& plan,
                      const std::string& config_dir, at::ScalarType dtype,
                      models::AttentionKind attention,
                      const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
                      const std::stop_token& stop);
  /// Reads ahead: as Prefetch::read().
  Status prefetch(const FileSystem& files, const checkpoint::Plan& plan,
                  const std::string& config_dir, at::ScalarType dtype, const std::stop_token& stop);
  /// As Prefetch::drop().
  bool drop_prefetched(std::chrono::milliseconds patience, bool again) {
    return prefetch_.drop(patience, again);
  }

  /// Attends otherwise from now on; a model is loaded. May throw c10::Error.
  void bind(models::AttentionKind attention) { model_->bind(*arena_, attention); }
  /// The model alone is gone; the weights' memory stays for the next load.
  void forget() { model_.reset(); }
  /// All memory is given back, also what was read ahead.
  void unload();

  /// Null where nothing is loaded.
  models::Model* model() const { return model_.get(); }
  at::ScalarType dtype() const { return dtype_; }
  /// Of its weights; 0 where nothing is loaded. By any thread.
  std::uint64_t bytes() const { return bytes_; }
  /// Of the weights that were read ahead or are being read. By any thread.
  std::uint64_t bytes_ahead() { return prefetch_.bytes(); }
  /// What a model with pictures makes of them follows from this.
  const std::string& tower() const { return tower_; }

 private:
  Result<weights::LoadReport> read(
      const FileSystem& files, const checkpoint::Plan& plan, const weights::WeightLayout& layout,
      const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
      const std::stop_token& stop);

  const c10::Device device_;
  const int threads_;
  EncodedPictures& encoded_;
  at::ScalarType dtype_ = at::kFloat;
  std::optional<weights::Arena> arena_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::unique_ptr<models::Model> model_;
  std::string tower_;
  Prefetch prefetch_;
};

}  // namespace evalcar::engine
