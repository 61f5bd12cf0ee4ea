#include "agent/page/sample_pictures.h"

#include "store/protocol/picture_name.h"

namespace evalcar::page {

bool SamplePictures::has(std::string_view name) const {
  if (!protocol::is_sample_picture_name(name)) return false;
  const auto info = files_.info(protocol::sample_picture_path(folder_, name));
  return info.has_value() && info->type == FileType::kRegular && info->size_bytes > 0;
}

Result<std::string> SamplePictures::read(std::string_view name) const {
  const auto none = [] { return make_error(ErrorCode::kNotFound, "no such picture is kept"); };
  if (!has(name)) return none();
  auto bytes = read_file(files_, protocol::sample_picture_path(folder_, name),
                         protocol::kMostSamplePictureBytes);
  if (!bytes.has_value() || !protocol::is_whole_sample_picture(*bytes)) return none();
  return bytes;
}

}  // namespace evalcar::page
