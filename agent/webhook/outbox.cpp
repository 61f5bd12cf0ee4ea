#include "agent/webhook/outbox.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/base/hash.h"

namespace evalcar::webhook {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostBytes = 4096;

/// How far the receiver at this URL is; absent: nothing is known of it.
std::optional<std::int64_t> delivered_in(const FileSystem& files, const std::string& path,
                                         const std::string& url_sha256) {
  const auto text = read_file(files, path, kMostBytes);
  if (!text.has_value()) return std::nullopt;
  const json known = json::parse(*text, nullptr, false);
  if (!known.is_object() || !known.contains("url_sha256") || !known.contains("delivered_seq")) {
    return std::nullopt;
  }
  if (known["url_sha256"] != url_sha256 || !known["delivered_seq"].is_number_integer()) {
    return std::nullopt;
  }
  return known["delivered_seq"].get<std::int64_t>();
}

}  // namespace

Outbox::Outbox(FileSystem& files, state::PublishedLines lines, std::string path,
               CourierOptions options, std::unique_ptr<Poster> poster, std::int64_t delivered)
    : files_(files),
      lines_(std::move(lines)),
      path_(std::move(path)),
      url_sha256_(sha256_hex(options.url)),
      delivered_(delivered),
      handed_out_(delivered),
      courier_(std::move(options), std::move(poster)) {}

Result<std::unique_ptr<Outbox>> Outbox::open(FileSystem& files, const std::string& database,
                                             CourierOptions options,
                                             std::unique_ptr<Poster> poster) {
  const std::string path = database + ".webhook.json";
  EVALCAR_ASSIGN_OR_RETURN(state::PublishedLines lines, state::PublishedLines::open(database));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t last, lines.last());
  const auto known = delivered_in(files, path, sha256_hex(options.url));
  // More than there is: the database was lost and made anew since.
  const std::int64_t delivered = std::min(known.value_or(last), last);
  auto outbox = std::unique_ptr<Outbox>(
      new Outbox(files, std::move(lines), path, std::move(options), std::move(poster), delivered));
  if (known != delivered) EVALCAR_RETURN_IF_ERROR(outbox->remember(delivered));
  return outbox;
}

Status Outbox::step() {
  if (const auto done = courier_.done(); done.has_value() && *done > delivered_) {
    EVALCAR_RETURN_IF_ERROR(remember(*done));
    delivered_ = *done;
  }
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const auto next, lines_.after(handed_out_));
    if (!next.has_value()) break;
    if (!courier_.take({next->seq, next->run, next->line})) break;
    handed_out_ = next->seq;
  }
  pending_ = handed_out_ > delivered_;
  return {};
}

Status Outbox::remember(std::int64_t seq) {
  const json text = {{"url_sha256", url_sha256_}, {"delivered_seq", seq}};
  return write_file_atomically(files_, path_, text.dump() + "\n", 0600);
}

}  // namespace evalcar::webhook
