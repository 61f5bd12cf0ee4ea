// Pictures as raw uint8 RGB files of the exact grid: no decoder, no resize.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "evaluator/engine/engine.h"
#include "store/base/hash.h"

namespace evalcar::testing {

/// What stands for a picture's content where its entry tells a "sha256".
inline std::optional<Sha256Digest> told_content(const nlohmann::json& image) {
  const auto told = image.find("sha256");
  if (told == image.end()) return std::nullopt;
  Sha256 hash;
  hash.update(told->get<std::string>());
  return hash.finish();
}

/// `images`: [{"rgb": FILE, "height": H, "width": W, "key": K, "sha256": S}, …]; relative files lie
/// in `folder`.
class RawImages final : public engine::ImageSource {
 public:
  explicit RawImages(nlohmann::json images, std::filesystem::path folder = {}, int patch = 14)
      : images_(std::move(images)), folder_(std::move(folder)), patch_(patch) {}
  std::size_t size() const override { return images_.size(); }
  std::uint64_t key_of(std::size_t index) const override {
    return images_[index].value("key", std::uint64_t{index});
  }
  std::optional<Sha256Digest> content_of(std::size_t index) const override {
    return told_content(images_[index]);
  }
  vision::PreparedSize size_of(std::size_t index) const override {
    return {1, images_[index]["height"].get<int>() / patch_,
            images_[index]["width"].get<int>() / patch_};
  }
  Result<vision::PreparedImage> load(std::size_t index) const override {
    const auto size = size_of(index);
    vision::PreparedImage image{.grid_h = size.grid_h,
                                .grid_w = size.grid_w,
                                .width = size.grid_w * patch_,
                                .height = size.grid_h * patch_};
    std::ifstream file(folder_ / images_[index]["rgb"].get<std::string>(), std::ios::binary);
    image.rgb.assign(std::istreambuf_iterator<char>(file), {});
    return image;
  }

 private:
  nlohmann::json images_;
  std::filesystem::path folder_;
  int patch_;
};

}  // namespace evalcar::testing
