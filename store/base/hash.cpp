#include "store/base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <new>

namespace evalcar {
namespace {

/// libcrypto's calls fail here for want of memory alone; the digest would be all zeros.
void require(int done) {
  if (done != 1) throw std::bad_alloc();
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
  void begin() {
    require(context != nullptr ? EVP_DigestInit_ex(context, EVP_sha256(), nullptr) : 0);
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { state_->begin(); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  require(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr));
  state_->begin();
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
