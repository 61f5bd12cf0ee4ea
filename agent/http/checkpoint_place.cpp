#include "agent/http/checkpoint_place.h"

#include <algorithm>

#include "store/checkpoint/layout.h"

namespace evalcar::http {

Status CheckpointPlaces::check(const std::string& path) const {
  if (!checkpoint::step_of_name(base_name(path), pattern_).has_value()) {
    return make_error(ErrorCode::kInvalidArgument,
                      path + ": no checkpoint by its name: watch.pattern is " + pattern_);
  }
  const auto is_parent = [&](const std::string& dir) {
    const auto real = places_.files().real_path(dir);
    return real.has_value() && *real == parent_path(path);
  };
  if (output_dirs_.empty() || std::ranges::any_of(output_dirs_, is_parent)) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    path +
                        ": does not lie in an output directory of this agent "
                        "(watch.output_dir); `evalcar serve` evaluates any");
}

Result<std::string> CheckpointPlaces::find(std::string_view text) const {
  EVALCAR_ASSIGN_OR_RETURN(std::string real, places_.folder(text));
  const Status checked = check(real);
  if (checked.has_value()) return real;
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  const std::string named(text);
  const auto parent = places_.folder(parent_path(named));
  if (!parent.has_value()) return checked.error();
  std::string entry = join_path(*parent, base_name(named));
  if (check(entry).has_value()) return entry;
  return checked.error();
}

Result<std::string> CheckpointPlaces::find_gone(std::string_view text) const {
  EVALCAR_ASSIGN_OR_RETURN(std::string place, places_.gone_folder(text));
  EVALCAR_RETURN_IF_ERROR(check(place));
  return place;
}

}  // namespace evalcar::http
