// What the vision tower made of pictures, kept in host memory for the next checkpoint: many freeze
// the tower, and then all checkpoints of a run see the same.
//
// Whether a tower is the same is proved by hashes of its tensors. Whether it will be is not known,
// so what is kept is kept on trial: of a run whose tower is trained, until kMostTowers other towers
// came; then nothing is kept any more, until one comes again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "store/base/hash.h"

namespace evalcar::engine {

/// Not thread-safe.
class EncodedPictures {
 public:
  /// Towers that are known at once: regular weights, their averages and EMA take turns.
  static constexpr std::size_t kMostTowers = 4;

  /// Keeps at most `most_bytes`, 0: nothing, and a quarter of the host's memory: of what this holds
  /// and what `free_bytes` says is free.
  EncodedPictures(std::uint64_t most_bytes, std::function<std::uint64_t()> free_bytes);

  /// Weights were loaded whose tower has this hash; what is kept from now on is of it.
  void begin(const std::string& tower);
  /// Whether the batch of this key (batch_key()) of the current tower is here; then it stays until
  /// the next begin(), unless clear() takes it.
  bool mark(const Sha256Digest& batch);
  /// (tokens, columns) as it was kept, in host memory; undefined where it is not here.
  at::Tensor find(const Sha256Digest& batch);
  /// Keeps the features of a batch if there is room. For a tower that came again those make room
  /// that nobody asked for while it was loaded the last time, and those of towers that did not come
  /// again. All else stays: a run asks in a circle, and would lose each just before it asks for it.
  /// May throw c10::Error, as a copy from a device does.
  void keep(const Sha256Digest& batch, const at::Tensor& features);
  /// Gives all of it back. Whether there was any.
  bool clear();
  /// Whether keep() does anything: not while a run lacks the memory that it would take.
  void set_keeping(bool keeping) { keeping_ = keeping; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Tower {
    std::string hash;
    std::uint64_t loads = 1;
    bool came_again() const { return loads > 1; }
  };
  struct Entry {
    at::Tensor features;
    std::string tower;
    std::uint64_t asked_at = 0;  ///< Tower::loads when it was asked for last
    std::uint64_t number = 0;    ///< the older ones are less
  };
  using Entries = std::map<Sha256Digest, Entry>;

  std::uint64_t limit() const;
  bool is_worth_keeping() const;
  bool make_room(std::uint64_t needed);
  bool may_go(const Entry& entry) const;
  Entries::iterator drop(Entries::iterator entry);
  void drop_tower(const std::string& hash);

  const std::uint64_t most_bytes_;
  const std::function<std::uint64_t()> free_bytes_;
  std::deque<Tower> towers_;      // the one that was loaded last is first
  std::size_t new_in_a_row_ = 0;  // towers that were not known when they were loaded
  std::uint64_t next_number_ = 0;
  std::uint64_t bytes_ = 0;
  bool keeping_ = true;
  Entries entries_;
};

}  // namespace evalcar::engine
