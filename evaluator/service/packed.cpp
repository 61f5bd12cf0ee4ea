#include "evaluator/service/packed.h"

#include <algorithm>

namespace evalcar::service {
namespace {

constexpr unsigned kBits = 7;
constexpr std::uint64_t kMore = 1U << kBits;

}  // namespace

void PackedWriter::number(std::uint64_t value) {
  for (; value >= kMore; value >>= kBits) bytes_ += static_cast<char>(value | kMore);
  bytes_ += static_cast<char>(value);
}

// The sign goes to the lowest bit: small negative numbers stay short.
void PackedWriter::whole(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  number((bits << 1U) ^ (value < 0 ? ~std::uint64_t{0} : 0));
}

void PackedWriter::text(std::string_view text) {
  number(text.size());
  bytes_ += text;
}

void PackedWriter::digest(const Sha256Digest& digest) {
  for (const std::uint8_t byte : digest) bytes_ += static_cast<char>(byte);
}

void PackedWriter::tokens(std::span<const std::int32_t> tokens) {
  number(tokens.size());
  for (auto at = tokens.begin(); at != tokens.end();) {
    const auto end = std::find_if(at, tokens.end(), [&](std::int32_t id) { return id != *at; });
    const auto length = static_cast<std::uint64_t>(end - at);
    number(std::uint64_t{static_cast<std::uint32_t>(*at)} << 1U | (length > 1 ? 1U : 0U));
    if (length > 1) number(length);
    at = end;
  }
}

void PackedReader::fail() {
  failed_ = true;
  bytes_ = {};
}

std::string_view PackedReader::take(std::uint64_t size) {
  if (size > bytes_.size()) {
    fail();
    return {};
  }
  const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(size));
  bytes_.remove_prefix(taken.size());
  return taken;
}

std::uint64_t PackedReader::number() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += kBits) {
    const std::string_view byte = take(1);
    if (byte.empty()) return 0;
    const auto bits = static_cast<std::uint64_t>(static_cast<unsigned char>(byte.front()));
    value |= (bits & (kMore - 1)) << shift;
    if (bits < kMore) return value;
  }
  fail();
  return 0;
}

std::int64_t PackedReader::whole() {
  const std::uint64_t bits = number();
  return static_cast<std::int64_t>((bits >> 1U) ^ ((bits & 1U) != 0 ? ~std::uint64_t{0} : 0));
}

std::size_t PackedReader::below(std::size_t end) {
  const std::uint64_t value = number();
  if (value < end) return static_cast<std::size_t>(value);
  fail();
  return 0;
}

std::size_t PackedReader::count() { return below(bytes_.size() + 1); }

std::string PackedReader::text() { return std::string(take(number())); }

Sha256Digest PackedReader::digest() {
  Sha256Digest digest = {};
  const std::string_view bytes = take(digest.size());
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

std::vector<std::int32_t> PackedReader::tokens() {
  std::vector<std::int32_t> tokens;
  const std::uint64_t all = number();
  if (all > most_tokens_) fail();
  if (failed_) return tokens;
  most_tokens_ -= all;
  tokens.reserve(static_cast<std::size_t>(all));
  while (tokens.size() < all) {
    const std::uint64_t run = number();
    const std::uint64_t length = (run & 1U) != 0 ? number() : 1;
    if (run >> 1U > UINT32_MAX || length == 0 || length > all - tokens.size()) fail();
    if (failed_) return {};
    tokens.insert(tokens.end(), static_cast<std::size_t>(length),
                  static_cast<std::int32_t>(static_cast<std::uint32_t>(run >> 1U)));
  }
  return tokens;
}

}  // namespace evalcar::service
