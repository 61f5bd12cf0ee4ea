#include "agent/http/places.h"

#include <algorithm>

#include "store/checkpoint/output_place.h"

namespace evalcar::http {
namespace {

constexpr std::size_t kMaxPath = 4'000;

bool is_inside(const std::string& path, const std::string& folder) {
  return path == folder || folder == "/" || path.starts_with(folder + "/");
}

}  // namespace

Status Places::check_text(std::string_view text) const {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
  if (text.starts_with('/') && text.size() <= kMaxPath && plain && !text.ends_with(' ')) return {};
  return make_error(ErrorCode::kInvalidArgument, "expected an absolute path");
}

Status Places::check_inside(const std::string& real) const {
  for (const std::string& root : roots_) {
    const auto place = files_->real_path(root);
    if (place.has_value() && is_inside(real, *place)) return {};
  }
  return make_error(ErrorCode::kUnsupported,
                    "the path is outside of the folders that requests may name "
                    "(server.allowed_roots)");
}

Result<std::string> Places::folder(std::string_view text) const {
  EVALCAR_RETURN_IF_ERROR(check_text(text));
  const auto real = files_->real_path(std::string(text));
  if (!real.has_value()) {
    // Whether something is there is nobody's business outside of the roots.
    EVALCAR_RETURN_IF_ERROR(output(text));
    return make_error(ErrorCode::kNotFound, std::string(text) + ": no such folder");
  }
  EVALCAR_RETURN_IF_ERROR(check_inside(*real));
  const auto info = files_->info_followed(*real);
  if (!info.has_value() || info->type != FileType::kDirectory) {
    return make_error(ErrorCode::kNotFound, std::string(text) + ": no such folder");
  }
  return *real;
}

Result<std::string> Places::gone_folder(std::string_view text) const {
  EVALCAR_RETURN_IF_ERROR(check_text(text));
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  const std::string name = base_name(text);
  EVALCAR_ASSIGN_OR_RETURN(const std::string parent, folder(parent_path(text)));
  const std::string place = join_path(parent, name);
  const auto info = files_->info(place);  // a link that leads nowhere is something
  const bool gone = !info.has_value() && info.error().code == ErrorCode::kNotFound;
  if (!gone || name.empty() || name == "." || name == "..") {
    return make_error(ErrorCode::kNotFound, std::string(text) + ": no such folder");
  }
  return place;
}

Result<std::string> Places::output(std::string_view text) const {
  EVALCAR_RETURN_IF_ERROR(check_text(text));
  EVALCAR_ASSIGN_OR_RETURN(const std::string place,
                           checkpoint::resolve_output(*files_, std::string(text)));
  EVALCAR_RETURN_IF_ERROR(check_inside(place));
  return place;
}

Status Places::check_not_ours(const std::string& place) const {
  const std::string inside = place + "/";
  std::size_t ours = inside.find("/_evalcar/");
  if (ours != std::string::npos && inside.substr(ours).starts_with("/_evalcar/merged/")) {
    ours = inside.find("/_evalcar/", ours + 1);
  }
  const bool published = std::ranges::any_of(own_, [&](const std::string& own) {
    const auto real = files_->real_path(own);
    return real.has_value() && is_inside(place, *real);
  });
  if (ours == std::string::npos && !published) return {};
  return make_error(ErrorCode::kUnsupported,
                    place + ": lies in a folder that evalcar keeps in order by itself");
}

}  // namespace evalcar::http
