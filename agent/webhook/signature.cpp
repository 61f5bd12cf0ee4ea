#include "agent/webhook/signature.h"

#include <span>

#include "store/base/hash.h"

namespace evalcar::webhook {
namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::uint64_t kMostSecretBytes = 4096;

std::string_view text_of(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string hmac_sha256_hex(std::string_view key, std::string_view text) {
  Sha256 hash;
  std::string block(key);
  if (block.size() > kBlockBytes) {
    hash.update(key);
    block = text_of(hash.finish());
  }
  block.resize(kBlockBytes, '\0');
  const auto masked = [&block](unsigned char mask) {
    std::string bytes = block;
    for (char& byte : bytes) byte = static_cast<char>(static_cast<unsigned char>(byte) ^ mask);
    return bytes;
  };
  hash.update(masked(0x36));
  hash.update(text);
  const Sha256Digest inner = hash.finish();
  hash.update(masked(0x5C));
  hash.update(text_of(inner));
  return to_hex(hash.finish());
}

Result<std::string> read_secret(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files.info_followed(path));
  if ((info.mode & 07U) != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      path + ": everybody may use this secret; chmod 600 it");
  }
  EVALCAR_ASSIGN_OR_RETURN(std::string secret, read_file(files, path, kMostSecretBytes));
  while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
  if (secret.empty()) return make_error(ErrorCode::kInvalidArgument, path + ": is empty");
  return secret;
}

}  // namespace evalcar::webhook
