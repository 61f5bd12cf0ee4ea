#include "evaluator/vision/sample_pictures.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "evaluator/vision/small_picture.h"
#include "store/protocol/picture_name.h"

namespace evalcar::vision {
namespace {

/// What a file takes on the disk; and so the budget bounds how many there are.
constexpr std::uint64_t kBlock = 4096;
constexpr std::size_t kEnd = 4;

}  // namespace

SamplePictures::SamplePictures(FileSystem& files, const Clock& clock, SamplePicturesOptions options)
    : files_(files),
      shelf_(files, clock,
             {.folder = std::move(options.folder),
              .bytes = options.bytes,
              .keep_free = options.keep_free,
              .block = kBlock,
              .what = "pictures of samples"}) {}

bool SamplePictures::wants(const Sha256Digest& picture) {
  return !is_there(shelf_.path_of(protocol::sample_picture_name(picture))) && shelf_.is_open();
}

/// Its beginning and its end tell: a crash leaves a file empty, short or full of zeros.
bool SamplePictures::is_there(const std::string& path) {
  const auto file = files_.open_readable(path);
  if (!file.has_value()) return false;
  const auto info = (*file)->info();
  if (!info.has_value() || info->size_bytes < 2 * kEnd) return false;
  std::array<char, 2 * kEnd> ends{};
  const auto bytes = std::as_writable_bytes(std::span(ends));
  const std::uint64_t last = info->size_bytes - kEnd;
  if (!(*file)->read_exactly_at(0, bytes.first(kEnd), path).has_value()) return false;
  if (!(*file)->read_exactly_at(last, bytes.last(kEnd), path).has_value()) return false;
  if (!protocol::is_whole_sample_picture({ends.data(), ends.size()})) return false;
  shelf_.mark_used(path, info->mtime_ns);
  return true;
}

void SamplePictures::keep(const Sha256Digest& picture, const Image& image) {
  if (!wants(picture)) return;
  const auto jpeg = small_jpeg(image, protocol::kSamplePictureSide);
  if (!jpeg.has_value()) return;
  shelf_.keep(protocol::sample_picture_name(picture), jpeg->size(),
              [&](WritableFile& file) { return file.append(std::span(*jpeg)); });
}

}  // namespace evalcar::vision
