#include "evaluator/vision/picture_cache.h"

#include <iostream>
#include <utility>

namespace evalcar::vision {

PictureCache::PictureCache(FileSystem& files, const Clock& clock, PictureCacheOptions options)
    : files_(files),
      shelf_(files, clock,
             {.folder = std::move(options.folder),
              .bytes = options.bytes,
              .keep_free = options.keep_free,
              .what = "picture cache"}),
      made_by_(std::move(options.made_by)) {}

// All that the pixels follow from. What is done to them later (mean, deviation) is not in it.
PictureKey PictureCache::key_of(const Sha256Digest& picture,
                                const ProcessorSettings& settings) const {
  Sha256 hash;
  hash.update("prepared picture 1\n" + made_by_ + "\n" + to_hex(picture));
  for (const std::int64_t number :
       {std::int64_t{settings.patch_size}, std::int64_t{settings.merge_size},
        static_cast<std::int64_t>(settings.sizing), settings.min_pixels, settings.max_pixels,
        std::int64_t{settings.slow_processor}}) {
    hash.update("\n" + std::to_string(number));
  }
  if (settings.anyres) {
    hash.update("\nsquares of " + std::to_string(settings.anyres->tile));
    for (const ImageSize& size : settings.anyres->resolutions)
      hash.update("\n" + std::to_string(size.height) + "x" + std::to_string(size.width));
  }
  return hash.finish();
}

std::optional<PreparedImage> PictureCache::find(const Sha256Digest& picture,
                                                const ProcessorSettings& settings) {
  const PictureKey key = key_of(picture, settings);
  const std::string path = shelf_.path_of(to_hex(key));
  const auto file = files_.open_readable(path);
  if (!file.has_value()) return std::nullopt;
  auto image = read_entry(**file, key, path);
  if (!image.has_value()) {
    if (image.error().code != ErrorCode::kCorruption) return std::nullopt;
    (void)files_.remove_file(path);
    if (!told_damage_.exchange(true))
      std::cerr << "warning: picture cache: " << image.error().message << "; made anew\n";
    return std::nullopt;
  }
  if (const auto info = (*file)->info(); info.has_value()) shelf_.mark_used(path, info->mtime_ns);
  set_grid(*image, settings);
  return std::move(*image);
}

void PictureCache::keep(const Sha256Digest& picture, const ProcessorSettings& settings,
                        const PreparedImage& image) {
  const PictureKey key = key_of(picture, settings);
  shelf_.keep(to_hex(key), entry_bytes(image),
              [&](WritableFile& file) { return write_entry(file, key, image); });
}

}  // namespace evalcar::vision
