#include "store/checkpoint/home_place.h"

#include "store/checkpoint/output_place.h"

namespace evalcar::checkpoint {
namespace {

constexpr const char* kHome = "_evalcar";
constexpr std::uint64_t kMostNameBytes = 4096;

/// The real path, also of one that is not there yet.
std::string real_path_of(const FileSystem& files, const std::string& path) {
  return resolve_output(files, path).value_or(path);
}

}  // namespace

std::string home_within(const std::string& output_dir) { return join_path(output_dir, kHome); }

std::string home_signed_for(const FileSystem& files, const std::string& home) {
  auto name = read_file(files, join_path(home, kWatchedFile), kMostNameBytes);
  if (!name.has_value()) return "";
  if (name->ends_with('\n')) name->pop_back();
  return *name;
}

HomePlace home_place(const FileSystem& files, const std::string& output_dir,
                     std::string_view pattern) {
  const std::string real = real_path_of(files, output_dir);
  HomePlace beside{join_path(parent_path(real), kHome), base_name(real)};
  // It stays there when the checkpoints are gone, and when another pattern is given.
  if (home_signed_for(files, beside.path) == beside.watched ||
      is_kept_by_accelerate(files, output_dir, pattern)) {
    return beside;
  }
  return {home_within(output_dir), ""};
}

Status check_home_owner(const FileSystem& files, const std::string& output_dir,
                        const HomePlace& place) {
  const std::string owner = home_signed_for(files, place.path);
  const auto taken = [&](const std::string& whose) {
    return make_error(ErrorCode::kInvalidArgument,
                      output_dir + ": evalcar's folder for it would be " + place.path +
                          ", which is that of " + whose +
                          "; keep the two trainings under folders of their own");
  };
  if (owner == place.watched) return {};
  const std::string around = parent_path(place.path);
  if (!owner.empty()) return taken(join_path(around, owner));
  if (files.info(join_path(place.path, kRunMarkFile)).has_value()) return taken(around + " itself");
  return {};
}

}  // namespace evalcar::checkpoint
