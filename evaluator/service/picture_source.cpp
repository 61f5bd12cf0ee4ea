#include "evaluator/service/picture_source.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <set>
#include <utility>

#include "evaluator/vision/image.h"
#include "store/protocol/picture_name.h"

namespace evalcar::service {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

Sha256Digest digest_of_bytes(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

}  // namespace

Result<std::size_t> PictureSource::add(const tasks::Task& task, std::int64_t doc_id,
                                       std::size_t position, std::string_view model_family,
                                       std::string_view bytes, std::string_view name) {
  const Sha256Digest digest = digest_of_bytes(bytes);
  if (const auto known = by_content_.find(digest); known != by_content_.end()) return known->second;
  EVALCAR_ASSIGN_OR_RETURN(const vision::ImageSize size,
                           vision::read_image_size(as_bytes(bytes), name));
  auto prepared = vision::prepared_size(size.height, size.width, settings_);
  if (!prepared.has_value()) return with_context(std::move(prepared).error(), name);
  return add_known(task,
                   {.doc_id = doc_id,
                    .position = position,
                    .digest = digest,
                    .size = *prepared,
                    .is_cut_off = vision::is_cut_off(as_bytes(bytes))},
                   model_family, name);
}

std::size_t PictureSource::add_known(const tasks::Task& task, const PreparedPicture& picture,
                                     std::string_view model_family, std::string_view name) {
  const auto [known, is_new] = by_content_.try_emplace(picture.digest, places_.size());
  if (is_new) {
    places_.push_back({&task, picture.doc_id, picture.position, std::string(model_family),
                       std::string(name), picture.size, picture.digest, picture.is_cut_off});
  }
  return known->second;
}

std::int64_t PictureSource::cut_off_among(
    std::span<const std::vector<std::size_t>> of_documents) const {
  std::set<std::size_t> found;
  for (const std::vector<std::size_t>& pictures : of_documents) {
    for (const std::size_t picture : pictures) {
      if (places_[picture].is_cut_off) found.insert(picture);
    }
  }
  return static_cast<std::int64_t>(found.size());
}

Result<vision::PreparedImage> PictureSource::load(std::size_t index) const {
  const Place& place = places_[index];
  std::optional<vision::PreparedImage> prepared;
  if (cache_ != nullptr) prepared = cache_->find(place.digest, settings_);
  const bool kept = prepared.has_value();
  if (kept) {
    show(index);
  } else {
    EVALCAR_ASSIGN_OR_RETURN(const vision::Image image, decode(place));
    auto made = vision::prepare_image(image, settings_);
    if (!made.has_value()) return with_context(std::move(made).error(), place.name);
    prepared = std::move(*made);
  }
  if (prepared->grid_t != place.size.grid_t || prepared->grid_h != place.size.grid_h ||
      prepared->grid_w != place.size.grid_w) {
    return make_error(ErrorCode::kInternal,
                      place.name + ": its pixels have another size than its header told");
  }
  if (!kept && cache_ != nullptr) cache_->keep(place.digest, settings_, *prepared);
  return std::move(*prepared);
}

std::vector<std::string> PictureSource::shown_names(std::span<const std::size_t> indices) const {
  std::vector<std::string> names;
  for (const std::size_t index :
       indices.first(std::min(indices.size(), protocol::kMostSamplePictures))) {
    names.push_back(protocol::sample_picture_name(digest_of(index)));
  }
  return names;
}

void PictureSource::show(std::size_t index) const {
  if (shown_ != nullptr && shown_->wants(digest_of(index))) (void)decode(places_[index]);
}

Result<vision::Image> PictureSource::decode(const Place& place) const {
  EVALCAR_ASSIGN_OR_RETURN(const tasks::Prompt prompt,
                           place.task->prompt(place.doc_id, place.model_family));
  if (place.position >= prompt.images.size()) {
    return make_error(ErrorCode::kInternal,
                      place.name + ": the document lost its picture since it was planned");
  }
  const std::string_view bytes = prompt.images[place.position];
  if (digest_of_bytes(bytes) != place.digest) {
    return make_error(ErrorCode::kCorruption,
                      place.name + ": its bytes changed since the evaluation was planned");
  }
  auto image = vision::decode_image(as_bytes(bytes), place.name);
  if (image.has_value() && image->is_incomplete) {
    std::cerr << "warning: " + place.name +
                     ": its file is cut off or broken; what is missing is read as lmms-eval's "
                     "Pillow fills it up\n";
  }
  if (image.has_value() && shown_ != nullptr) shown_->keep(place.digest, *image);
  return image;
}

}  // namespace evalcar::service
