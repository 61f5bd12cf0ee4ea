// Python's `random` module, as far as lmms-eval's scorers use it: the Mersenne Twister MT19937 of
// Matsumoto and Nishimura, seeded by CPython's init_by_array, and random.choice by rejection
// sampling.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace evalcar::metrics {

/// Gives the same numbers as `random.seed(seed)` and calls after it. Not thread-safe: the order of
/// calls is the point.
class PythonRandom {
 public:
  /// random.seed(seed): the sign of the seed does not matter (CPython takes its absolute value).
  explicit PythonRandom(std::int64_t seed);

  /// The index that random.choice takes of a sequence of `size` > 0 items: CPython's _randbelow.
  std::size_t choice(std::size_t size);
  /// The indices that random.sample(sequence, count) takes of a sequence of `size` items; count <=
  /// size. As CPython 3.11: of a short sequence from a pool that shrinks, of a long one by drawing
  /// again what was drawn before.
  std::vector<std::size_t> sample(std::size_t size, std::size_t count);
  /// random.random(): [0, 1) with 53 bits.
  double random();
  /// How many 32-bit words were drawn.
  std::uint64_t words_drawn() const { return words_drawn_; }

 private:
  std::uint32_t next_word();

  std::array<std::uint32_t, 624> state_{};
  std::size_t index_ = 0;
  std::uint64_t words_drawn_ = 0;
};

}  // namespace evalcar::metrics
