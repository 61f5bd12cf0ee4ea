#include "agent/webhook/outbox.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/base/hash.h"

namespace evalcar::webhook {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostBytes = 4096;

/// How far the receiver at this URL is; absent: nothing is known of it.
std::optional<std::int64_t> delivered_in(const FileSystem& files, const std::string& path,
                                         const std::string& url_sha256) {
  const auto text = read_file(files, path, kMostBytes);
  if (!text.has_value()) return std::nullopt;
  const Json known = Json::parse(*text, nullptr, false);
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
               CourierOptions options, std::unique_ptr<Poster> poster)
    : files_(files),
      lines_(std::move(lines)),
      path_(std::move(path)),
      url_sha256_(sha256_hex(options.url)),
      courier_(std::move(options), std::move(poster)) {}

Outbox::~Outbox() {
  courier_.stop();
  (void)note_delivered();  // else that one is posted once more, under its name
}

Result<std::unique_ptr<Outbox>> Outbox::open(FileSystem& files, const std::string& database,
                                             CourierOptions options,
                                             std::unique_ptr<Poster> poster) {
  EVALCAR_ASSIGN_OR_RETURN(state::PublishedLines lines, state::PublishedLines::open(database));
  return std::unique_ptr<Outbox>(new Outbox(files, std::move(lines), database + ".webhook.json",
                                            std::move(options), std::move(poster)));
}

Status Outbox::begin() {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t last, lines_.last());
  const auto known = delivered_in(files_, path_, url_sha256_);
  // More than there is: the database and the files were lost, and seq began anew since.
  const std::int64_t delivered = std::min(known.value_or(last), last);
  if (known != delivered) EVALCAR_RETURN_IF_ERROR(remember(delivered));
  delivered_ = handed_out_ = delivered;
  begun_ = true;
  return {};
}

Status Outbox::step(std::int64_t run_id) {
  if (!begun_) EVALCAR_RETURN_IF_ERROR(begin());
  EVALCAR_RETURN_IF_ERROR(note_delivered());
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const auto next, lines_.after(handed_out_, run_id));
    if (!next.has_value()) return {};
    if (!courier_.take({next->seq, next->run, next->line})) return {};
    handed_out_ = next->seq;
  }
}

Status Outbox::note_delivered() {
  const auto done = courier_.done();
  if (!done.has_value() || *done <= delivered_) return {};
  EVALCAR_RETURN_IF_ERROR(remember(*done));
  delivered_ = *done;
  return {};
}

Status Outbox::remember(std::int64_t seq) {
  const Json text = {{"url_sha256", url_sha256_}, {"delivered_seq", seq}};
  return write_file_atomically(files_, path_, text.dump() + "\n", 0600);
}

}  // namespace evalcar::webhook
