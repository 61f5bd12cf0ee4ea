#include "evaluator/metrics/python_random.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

namespace evalcar::metrics {
namespace {

constexpr std::size_t kN = 624;
constexpr std::size_t kM = 397;

}  // namespace

PythonRandom::PythonRandom(std::int64_t seed) : index_(kN) {
  const auto magnitude = seed < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(seed)
                                  : static_cast<std::uint64_t>(seed);
  const std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(magnitude),
                                              static_cast<std::uint32_t>(magnitude >> 32U)};
  const std::span<const std::uint32_t> key(words.data(), words[1] == 0 ? 1 : 2);

  state_[0] = 19650218U;
  for (std::size_t i = 1; i < kN; ++i) {
    state_[i] =
        1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + static_cast<std::uint32_t>(i);
  }
  std::size_t i = 1;
  std::size_t j = 0;
  for (std::size_t k = std::max(kN, key.size()); k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1664525U)) + key[j] +
                static_cast<std::uint32_t>(j);
    if (++i >= kN) {
      state_[0] = state_[kN - 1];
      i = 1;
    }
    if (++j >= key.size()) j = 0;
  }
  for (std::size_t k = kN - 1; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1566083941U)) -
                static_cast<std::uint32_t>(i);
    if (++i >= kN) {
      state_[0] = state_[kN - 1];
      i = 1;
    }
  }
  state_[0] = 0x80000000U;
}

std::uint32_t PythonRandom::next_word() {
  if (index_ >= kN) {
    for (std::size_t k = 0; k < kN; ++k) {
      const std::uint32_t y = (state_[k] & 0x80000000U) | (state_[(k + 1) % kN] & 0x7fffffffU);
      state_[k] = state_[(k + kM) % kN] ^ (y >> 1U) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    index_ = 0;
  }
  std::uint32_t y = state_[index_++];
  y ^= y >> 11U;
  y ^= (y << 7U) & 0x9d2c5680U;
  y ^= (y << 15U) & 0xefc60000U;
  y ^= y >> 18U;
  ++words_drawn_;
  return y;
}

std::size_t PythonRandom::choice(std::size_t size) {
  assert(size > 0);
  // getrandbits(k) with k = size.bit_length(): the top k bits of a word (of two words beyond 32,
  // low word first).
  const auto bits = static_cast<unsigned>(std::bit_width(size));
  for (;;) {
    std::uint64_t drawn = 0;
    if (bits <= 32) {
      drawn = next_word() >> (32U - bits);
    } else {
      drawn = next_word();
      drawn |= static_cast<std::uint64_t>(next_word() >> (64U - bits)) << 32U;
    }
    if (drawn < size) return static_cast<std::size_t>(drawn);
  }
}

std::vector<std::size_t> PythonRandom::sample(std::size_t size, std::size_t count) {
  assert(count <= size);
  // The size of a small set less that of an empty list, and the table of a large one: which of both
  // ways takes less memory there.
  double set_size = 21;
  if (count > 5) {
    set_size += std::pow(4.0, std::ceil(std::log(static_cast<double>(count * 3)) / std::log(4.0)));
  }
  std::vector<std::size_t> result;
  result.reserve(count);
  if (static_cast<double>(size) <= set_size) {
    std::vector<std::size_t> pool(size);
    std::iota(pool.begin(), pool.end(), std::size_t{0});
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t drawn = choice(size - i);
      result.push_back(pool[drawn]);
      pool[drawn] = pool[size - i - 1];
    }
    return result;
  }
  std::set<std::size_t> selected;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t drawn = choice(size);
    while (!selected.insert(drawn).second) drawn = choice(size);
    result.push_back(drawn);
  }
  return result;
}

double PythonRandom::random() {
  const std::uint32_t a = next_word() >> 5U;
  const std::uint32_t b = next_word() >> 6U;
  return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

}  // namespace evalcar::metrics
