// Lets the Python parity tests call the vision room. Reads one command a line from stdin,
// tab-separated, and answers each with one line: "ok <words>" or "error <code> <message>". Pixels
// go to files.
//
//   decode  IN OUT                        -> ok WIDTH HEIGHT; OUT: (h, w, 3) bytes
//   size    IN                            -> ok WIDTH HEIGHT
//   resize  IN W H NEW_W NEW_H KIND CODE OUT      KIND pillow|torchvision, CODE fastest|portable
//   prepare IN W H DIR MIN MAX SLOW CODE OUT -> ok GRID_H GRID_W; OUT: patches of one frame,
//   float32 prepared_size W H DIR MIN MAX         -> ok GRID_H GRID_W cut W H DIR MIN MAX -> ok
//   GRID_T TOKENS, of the same settings DIR MIN MAX                  -> ok the settings time    IN
//   W H DIR MIN MAX REPEATS    -> ok microseconds of prepare_image, of write_patches (least)
//   time_decode IN REPEATS                -> ok microseconds (least) time_kept IN DIR MIN MAX CACHE
//   REPEATS -> ok microseconds (least) of decode_image and
//                                            prepare_image, of finding the same in the cache
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "evaluator/vision/image.h"
#include "evaluator/vision/picture_cache.h"
#include "evaluator/vision/prepare.h"

using namespace evalcar;
using namespace evalcar::vision;

namespace {

using Words = std::vector<std::string>;

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* bytes = static_cast<const std::byte*>(static_cast<const void*>(text.data()));
  return {bytes, bytes + text.size()};
}

void write_bytes(const std::string& path, const void* data, std::size_t size) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

Image raw_image(const std::string& path, int width, int height) {
  const std::vector<std::byte> bytes = read_bytes(path);
  Image image;
  image.width = width;
  image.height = height;
  const auto* pixels = static_cast<const std::uint8_t*>(static_cast<const void*>(bytes.data()));
  image.rgb.assign(pixels, pixels + bytes.size());
  if (bytes.size() != static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3)
    std::cerr << "vision_probe: " << path << " has " << bytes.size() << " bytes\n";
  return image;
}

Result<std::string> decode(const Words& words) {
  EVALCAR_ASSIGN_OR_RETURN(const Image image, decode_image(read_bytes(words.at(1)), words.at(1)));
  write_bytes(words.at(2), image.rgb.data(), image.rgb.size());
  return std::to_string(image.width) + " " + std::to_string(image.height);
}

Result<std::string> size(const Words& words) {
  EVALCAR_ASSIGN_OR_RETURN(const ImageSize found,
                           read_image_size(read_bytes(words.at(1)), words.at(1)));
  return std::to_string(found.width) + " " + std::to_string(found.height);
}

ResampleCode code_of(const std::string& word) {
  return word == "portable" ? ResampleCode::kPortable : ResampleCode::kFastest;
}

Result<std::string> resize(const Words& words) {
  const Image image = raw_image(words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)));
  EVALCAR_ASSIGN_OR_RETURN(
      const Image resized,
      resize_bicubic(image, std::stoi(words.at(5)), std::stoi(words.at(4)),
                     words.at(6) == "pillow" ? Resampler::kPillow : Resampler::kTorchvision,
                     code_of(words.at(7))));
  write_bytes(words.at(8), resized.rgb.data(), resized.rgb.size());
  return std::to_string(resized.width) + " " + std::to_string(resized.height);
}

std::size_t floats_of(const PreparedImage& prepared, const ProcessorSettings& settings) {
  return static_cast<std::size_t>(prepared.grid_t) * static_cast<std::size_t>(prepared.grid_h) *
         static_cast<std::size_t>(prepared.grid_w) * 3 *
         static_cast<std::size_t>(settings.patch_size * settings.patch_size);
}

// A limit is a number, or "-" for none. "utils:" or "processor:" before the first says who resizes;
// "anyres:PATCH:" that squares are cut for patches of that size.
PixelRule rule_of(std::string low, const std::string& high) {
  PixelRule rule;
  if (low.starts_with("utils:")) rule.sizing = Sizing::kUtils;
  if (low.starts_with("processor:")) rule.sizing = Sizing::kProcessor;
  if (low.starts_with("anyres:")) {
    rule.sizing = Sizing::kAnyres;
    rule.patch_size = std::stoi(low.substr(low.find(':') + 1));
  }
  low = low.substr(low.rfind(':') == std::string::npos ? 0 : low.rfind(':') + 1);
  const auto limit = [](const std::string& word) {
    return word == "-" ? std::nullopt : std::optional<std::int64_t>(std::stoll(word));
  };
  rule.min_pixels = limit(low);
  rule.max_pixels = limit(high);
  return rule;
}

Result<ProcessorSettings> settings_of(const Words& words, std::size_t at) {
  return load_processor_settings(RealFileSystem(), words.at(at),
                                 rule_of(words.at(at + 1), words.at(at + 2)));
}

Result<std::string> prepare(const Words& words) {
  const Image image = raw_image(words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)));
  EVALCAR_ASSIGN_OR_RETURN(ProcessorSettings settings, settings_of(words, 4));
  settings.slow_processor = words.at(7) == "slow";
  EVALCAR_ASSIGN_OR_RETURN(const PreparedImage prepared,
                           prepare_image(image, settings, code_of(words.at(8))));
  std::vector<float> patches(floats_of(prepared, settings));
  write_patches(prepared, settings, patches.data());
  write_bytes(words.at(9), patches.data(), patches.size() * sizeof(float));
  return std::to_string(prepared.grid_h) + " " + std::to_string(prepared.grid_w);
}

Result<std::string> only_size(const Words& words) {
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSettings settings, settings_of(words, 3));
  EVALCAR_ASSIGN_OR_RETURN(const PreparedSize found,
                           prepared_size(std::stoi(words.at(2)), std::stoi(words.at(1)), settings));
  return std::to_string(found.grid_h) + " " + std::to_string(found.grid_w);
}

Result<std::string> cut(const Words& words) {
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSettings settings, settings_of(words, 3));
  EVALCAR_ASSIGN_OR_RETURN(const PreparedSize found,
                           prepared_size(std::stoi(words.at(2)), std::stoi(words.at(1)), settings));
  return std::to_string(found.grid_t) + " " + std::to_string(found.tokens);
}

Result<std::string> show_settings(const Words& words) {
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSettings s, settings_of(words, 1));
  char text[512];
  std::snprintf(text, sizeof text, "%d %d %d %.17g %.17g %.17g %.17g %.17g %.17g %.17g %d",
                s.patch_size, s.merge_size, s.temporal_patch_size, s.image_mean[0], s.image_mean[1],
                s.image_mean[2], s.image_std[0], s.image_std[1], s.image_std[2], s.rescale_factor,
                s.slow_processor ? 1 : 0);
  return std::string(text);
}

template <typename Work>
double least_microseconds(int repeats, Work work) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count());
  }
  return least;
}

Result<std::string> time_prepare(const Words& words) {
  const Image image = raw_image(words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)));
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSettings settings, settings_of(words, 4));
  EVALCAR_ASSIGN_OR_RETURN(PreparedImage prepared, prepare_image(image, settings));
  const int repeats = std::stoi(words.at(7));
  const double resize_us = least_microseconds(repeats, [&] {
    auto again = prepare_image(image, settings);
    if (again) prepared = std::move(again).value();
  });
  std::vector<float> patches(floats_of(prepared, settings));
  const double write_us =
      least_microseconds(repeats, [&] { write_patches(prepared, settings, patches.data()); });
  return std::to_string(resize_us) + " " + std::to_string(write_us);
}

Result<std::string> time_decode(const Words& words) {
  const std::vector<std::byte> bytes = read_bytes(words.at(1));
  EVALCAR_ASSIGN_OR_RETURN(Image image, decode_image(bytes, words.at(1)));
  return std::to_string(least_microseconds(std::stoi(words.at(2)), [&] {
    auto again = decode_image(bytes, words[1]);
    if (again) image = std::move(again).value();
  }));
}

Result<std::string> time_kept(const Words& words) {
  const std::vector<std::byte> bytes = read_bytes(words.at(1));
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSettings settings, settings_of(words, 2));
  RealFileSystem files;
  const SystemClock clock;
  PictureCache cache(files, clock,
                     {.folder = words.at(5), .bytes = std::uint64_t{1} << 30U, .made_by = "probe"});
  Sha256 hash;
  hash.update(bytes);
  const Sha256Digest digest = hash.finish();
  const int repeats = std::stoi(words.at(6));
  Result<PreparedImage> made = PreparedImage{};
  const double make_us = least_microseconds(repeats, [&] {
    const auto image = decode_image(bytes, words[1]);
    if (image) made = prepare_image(*image, settings);
  });
  EVALCAR_RETURN_IF_ERROR(made);
  cache.keep(digest, settings, *made);
  bool same = true;
  const double find_us = least_microseconds(repeats, [&] {
    const auto found = cache.find(digest, settings);
    same = same && found.has_value() && found->rgb == made->rgb;
  });
  if (!same) return make_error(ErrorCode::kInternal, "the cache gave something else");
  return std::to_string(make_us) + " " + std::to_string(find_us);
}

Result<std::string> answer(const Words& words) {
  const std::string& command = words.at(0);
  if (command == "decode") return decode(words);
  if (command == "size") return size(words);
  if (command == "resize") return resize(words);
  if (command == "prepare") return prepare(words);
  if (command == "prepared_size") return only_size(words);
  if (command == "cut") return cut(words);
  if (command == "settings") return show_settings(words);
  if (command == "time") return time_prepare(words);
  if (command == "time_decode") return time_decode(words);
  if (command == "time_kept") return time_kept(words);
  return make_error(ErrorCode::kInvalidArgument, "unknown command " + command);
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    Words words;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t end = std::min(line.find('\t', at), line.size());
      words.push_back(line.substr(at, end - at));
      at = end + 1;
    }
    const Result<std::string> result = answer(words);
    if (result)
      std::cout << "ok " << *result << std::endl;
    else
      std::cout << "error " << error_code_name(result.error().code) << " " << result.error().message
                << std::endl;
  }
  return 0;
}
