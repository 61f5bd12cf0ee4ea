// The pictures of one evaluation: each distinct picture once, its size known, its pixels made when
// they are needed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/prepared_task.h"
#include "evaluator/tasks/task.h"
#include "evaluator/vision/picture_cache.h"
#include "evaluator/vision/sample_pictures.h"
#include "store/base/hash.h"
#include "store/base/result.h"

namespace evalcar::service {

/// Pictures on the disk; each may be nullptr.
struct KeptPictures {
  vision::PictureCache* prepared = nullptr;
  vision::SamplePictures* shown = nullptr;  ///< the small ones for people
};

/// Remembers where a picture can be read again, not its bytes: a data set's pictures do not fit in
/// memory. Pictures of equal bytes are one. Filling is for one thread; reading is thread-safe.
/// Tasks outlive it.
class PictureSource final : public engine::ImageSource {
 public:
  PictureSource(vision::ProcessorSettings settings, const KeptPictures& kept)
      : settings_(settings), cache_(kept.prepared), shown_(kept.shown) {}

  /// The index of this picture, which is picture number `position` of the document's prompt. `name`
  /// is for messages.
  Result<std::size_t> add(const tasks::Task& task, std::int64_t doc_id, std::size_t position,
                          std::string_view model_family, std::string_view bytes,
                          std::string_view name);

  /// The same of a picture that was added by an earlier evaluation, with what was found then.
  std::size_t add_known(const tasks::Task& task, const PreparedPicture& picture,
                        std::string_view model_family, std::string_view name);

  std::size_t size() const override { return places_.size(); }
  std::optional<Sha256Digest> content_of(std::size_t index) const override {
    return places_[index].digest;
  }
  vision::PreparedSize size_of(std::size_t index) const override { return places_[index].size; }
  Result<vision::PreparedImage> load(std::size_t index) const override;
  const vision::ProcessorSettings& settings() const { return settings_; }
  bool is_cut_off(std::size_t index) const { return places_[index].is_cut_off; }
  /// How many different pictures of these documents are cut off.
  std::int64_t cut_off_among(std::span<const std::vector<std::size_t>> of_documents) const;
  /// SHA-256 of the picture's encoded bytes.
  const Sha256Digest& digest_of(std::size_t index) const { return places_[index].digest; }
  /// The names of those of these that people are shown, where any are: also which share pictures.
  std::vector<std::string> shown_names(std::span<const std::size_t> indices) const;
  /// Makes the small picture if it is missing: of one whose pixels nobody asked for, as its answers
  /// were known. One that cannot be made is not there.
  void show(std::size_t index) const;

 private:
  struct Place {
    const tasks::Task* task = nullptr;
    std::int64_t doc_id = 0;
    std::size_t position = 0;
    std::string model_family;
    std::string name;
    vision::PreparedSize size;
    Sha256Digest digest = {};
    bool is_cut_off = false;
  };

  /// The picture again, and where it is to be shown, its small one. Of one that is incomplete the
  /// log tells.
  Result<vision::Image> decode(const Place& place) const;

  vision::ProcessorSettings settings_;
  vision::PictureCache* cache_;
  vision::SamplePictures* shown_;
  std::map<Sha256Digest, std::size_t> by_content_;
  std::vector<Place> places_;
};

}  // namespace evalcar::service
