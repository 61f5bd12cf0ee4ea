#include "evaluator/service/prepared_entry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

namespace evalcar::service {
namespace {

constexpr std::array<char, 8> kMagic = {'e', 'v', 'c', 't', 'a', 's', 'k', '2'};
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 30U;  // 4 GiB of requests

// As the machine holds it: a cache does not travel.
struct Header {
  std::array<char, 8> magic = kMagic;
  PreparationKey key = {};
  std::uint64_t packed_xxh3 = 0;
  std::uint64_t header_xxh3 = 0;  // of all above, and of how many bytes follow
};
static_assert(sizeof(Header) == 56 && std::is_trivially_copyable_v<Header>);

std::uint64_t checksum_of(Header header, std::uint64_t packed_bytes) {
  header.header_xxh3 = packed_bytes;
  return xxh3_64(std::as_bytes(std::span(&header, 1)));
}

Error damaged(const std::string& path, const std::string& what) {
  return make_error(ErrorCode::kCorruption, path + ": " + what);
}

void pack(PackedWriter& out, const engine::Request& request) {
  out.tokens(request.tokens);
  out.number(request.scoring.has_value() ? 1 : 0);
  if (!request.scoring.has_value()) return;
  out.number(request.scoring->spans.size());
  for (const engine::TokenSpan& span : request.scoring->spans) {
    out.whole(span.begin);
    out.whole(span.end);
  }
  out.number(request.scoring->continuations.size());
  for (const auto& continuation : request.scoring->continuations) out.tokens(continuation);
}

/// So many of them as are said to follow, while the bytes hold.
template <typename Thing, typename Unpack>
void unpack_each(PackedReader& in, std::vector<Thing>& things, Unpack unpack_one) {
  const std::size_t count = in.count();
  for (std::size_t i = 0; i < count && !in.failed(); ++i) things.push_back(unpack_one());
}

engine::Request unpack_request(PackedReader& in) {
  engine::Request request;
  request.tokens = in.tokens();
  if (in.below(2) == 0) return request;
  engine::Scoring& scoring = request.scoring.emplace();
  unpack_each(in, scoring.spans,
              [&] { return engine::TokenSpan{.begin = in.whole(), .end = in.whole()}; });
  unpack_each(in, scoring.continuations, [&] { return in.tokens(); });
  return request;
}

void pack(PackedWriter& out, const PreparedPicture& picture) {
  out.whole(picture.doc_id);
  out.number(picture.position);
  out.digest(picture.digest);
  const vision::PreparedSize& size = picture.size;
  for (const std::int64_t number :
       {std::int64_t{size.grid_t}, std::int64_t{size.grid_h}, std::int64_t{size.grid_w},
        size.tokens, std::int64_t{size.picture.width}, std::int64_t{size.picture.height}})
    out.whole(number);
  out.number(picture.is_cut_off ? 1 : 0);
}

PreparedPicture unpack_picture(PackedReader& in) {
  PreparedPicture picture;
  picture.doc_id = in.whole();
  picture.position = static_cast<std::size_t>(in.number());
  picture.digest = in.digest();
  const auto side = [&] { return static_cast<int>(in.whole()); };
  picture.size.grid_t = side();
  picture.size.grid_h = side();
  picture.size.grid_w = side();
  picture.size.tokens = in.whole();
  picture.size.picture.width = side();
  picture.size.picture.height = side();
  picture.is_cut_off = in.below(2) == 1;
  return picture;
}

PreparedDocument unpack_document(PackedReader& in, std::vector<PreparedPicture>& pictures) {
  PreparedDocument document;
  document.doc_id = in.whole();
  document.json = in.text();
  document.input = in.text();
  document.cut = in.below(2) == 1;
  unpack_each(in, document.pictures, [&] {
    const std::size_t place = in.below(pictures.size() + 1);
    if (place == pictures.size()) pictures.push_back(unpack_picture(in));
    return place;
  });
  unpack_each(in, document.requests, [&] { return unpack_request(in); });
  return document;
}

ReadFile unpack_read_file(PackedReader& in) {
  ReadFile file;
  file.path = in.text();
  file.identity = {.device = in.number(),
                   .inode = in.number(),
                   .size_bytes = in.number(),
                   .mtime_ns = in.whole(),
                   .ctime_ns = in.whole()};
  return file;
}

/// Absent where the bytes are not what PreparedTaskPacker makes.
std::optional<PreparedTask> unpack(std::string_view packed) {
  PackedReader in(packed, kMostTokens);
  PreparedTask task;
  task.size = in.whole();
  task.data_fingerprint = in.text();
  task.shots = in.whole();
  unpack_each(in, task.read, [&] { return unpack_read_file(in); });
  unpack_each(in, task.documents, [&] { return unpack_document(in, task.pictures); });
  if (!in.is_whole()) return std::nullopt;
  return task;
}

}  // namespace

void PreparedTaskPacker::add(const PreparedDocument& document,
                             std::span<const PreparedPicture> pictures) {
  PackedWriter& out = documents_;
  out.whole(document.doc_id);
  out.text(document.json);
  out.text(document.input);
  out.number(document.cut ? 1 : 0);
  out.number(pictures.size());
  for (const PreparedPicture& picture : pictures) {
    const auto [place, is_new] = pictures_.try_emplace(picture.digest, pictures_.size());
    out.number(place->second);
    if (is_new) pack(out, picture);
  }
  out.number(document.requests.size());
  for (const engine::Request& request : document.requests) pack(out, request);
  ++count_;
}

std::string PreparedTaskPacker::finish(const PreparedTask& task) {
  PackedWriter out;
  out.whole(task.size);
  out.text(task.data_fingerprint);
  out.whole(task.shots);
  out.number(task.read.size());
  for (const ReadFile& file : task.read) {
    out.text(file.path);
    out.number(file.identity.device);
    out.number(file.identity.inode);
    out.number(file.identity.size_bytes);
    out.whole(file.identity.mtime_ns);
    out.whole(file.identity.ctime_ns);
  }
  out.number(count_);
  return out.bytes() + documents_.bytes();
}

std::uint64_t prepared_bytes(std::string_view packed) { return sizeof(Header) + packed.size(); }

Status write_prepared(WritableFile& file, const PreparationKey& key, std::string_view packed) {
  Header header{.key = key};
  header.packed_xxh3 = xxh3_64(std::as_bytes(std::span(packed)));
  header.header_xxh3 = checksum_of(header, packed.size());
  EVALCAR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&header, 1))));
  return file.append(packed);
}

Result<PreparedTask> read_prepared(const ReadableFile& file, const PreparationKey& key,
                                   const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  if (info.size_bytes < sizeof(Header) || info.size_bytes > kMostEntryBytes)
    return damaged(path, std::to_string(info.size_bytes) + " bytes, which no prepared task has");
  Header header;
  EVALCAR_RETURN_IF_ERROR(
      file.read_exactly_at(0, std::as_writable_bytes(std::span(&header, 1)), path));
  const std::uint64_t size = info.size_bytes - sizeof(Header);
  if (header.magic != kMagic || header.header_xxh3 != checksum_of(header, size))
    return damaged(path, "its first 56 bytes are not those of a prepared task of its size");
  if (header.key != key) return damaged(path, "is of another task than its name says");
  std::string packed(static_cast<std::size_t>(size), '\0');
  EVALCAR_RETURN_IF_ERROR(
      file.read_exactly_at(sizeof(Header), std::as_writable_bytes(std::span(packed)), path));
  if (xxh3_64(std::as_bytes(std::span(packed))) != header.packed_xxh3)
    return damaged(path, "its content is not what was written");
  auto task = unpack(packed);
  if (!task.has_value()) return damaged(path, "its content is no prepared task");
  return std::move(*task);
}

}  // namespace evalcar::service
