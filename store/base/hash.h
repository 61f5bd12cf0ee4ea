// The two hashes of this project: SHA-256 proves which bytes were measured, XXH3 names cache
// entries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace evalcar {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// Incremental SHA-256 (FIPS 180-4), by libcrypto, which picks SHA-NI where the CPU has it. Not
/// thread-safe; one per thread. Only making one allocates.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// The digest of everything so far; the object starts anew afterwards.
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Lower-case hexadecimal.
std::string to_hex(std::span<const std::uint8_t> bytes);

/// SHA-256 of a text, in hexadecimal.
std::string sha256_hex(std::string_view text);

/// XXH3-64 of the bytes: fast, not cryptographic; for cache keys and change detection only.
std::uint64_t xxh3_64(std::span<const std::byte> bytes);

}  // namespace evalcar
