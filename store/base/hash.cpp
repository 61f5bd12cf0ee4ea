#include "store/base/hash.h"

// The calls below EVP: those fetch an implementation out of the library's context, and where memory
// runs out while that is made for the first time, libcrypto 3.0 reads through a null pointer. These
// allocate nothing, and run the same code.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <xxhash.h>

namespace evalcar {
namespace {

// SHA-256 is one chain of instructions, and the CPU stands still in it for each line of memory that
// is in no cache, as those of weights that were just read: of 16 MiB and more a core with SHA-NI
// hashed 1.2 GB/s, and 1.9 of what was in its caches. Asked for so far ahead, the lines are there
// in time, and it is 1.9 always. Longer steps were slower (1.7 with 4 KiB): the CPU can have only
// so many lines on their way.
constexpr std::size_t kAheadBytes = 2048;
constexpr std::size_t kStepBytes = 1024;
constexpr std::size_t kLineBytes = 64;

}  // namespace

struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256_Init(&state_->context); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  while (bytes.size() >= kAheadBytes + kStepBytes) {
    for (std::size_t at = 0; at < kStepBytes; at += kLineBytes) {
      __builtin_prefetch(&bytes[kAheadBytes + at]);
    }
    SHA256_Update(&state_->context, bytes.data(), kStepBytes);
    bytes = bytes.subspan(kStepBytes);
  }
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  SHA256_Final(digest.data(), &state_->context);
  SHA256_Init(&state_->context);
  return digest;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4U]);
    text.push_back(kDigits[byte & 15U]);
  }
  return text;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return to_hex(hash.finish());
}

std::uint64_t xxh3_64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace evalcar
