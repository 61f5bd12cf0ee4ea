#include "agent/cli/run_config_watch.h"

#include <spdlog/spdlog.h>

namespace evalcar::cli {
namespace {

bool same(const std::optional<FileInfo>& one, const FileInfo& other) {
  return one.has_value() && one->same_content_identity(other);
}

}  // namespace

bool RunConfigWatch::changed(const config::Config& now) {
  const MonotonicTime time = clock_.monotonic_now();
  if (!now.run_config.has_value() || time < due_) return false;
  due_ = time + now.settings.watch.poll_interval;
  const auto info = files_.info_followed(now.run_config->path);
  if (!info.has_value() || same(now.run_config->identity, *info) || same(told_, *info)) {
    return false;
  }
  if (!same(seen_, *info)) {
    seen_ = *info;
    return false;
  }
  told_ = *info;
  spdlog::info("{}: was written anew; the configuration is read again, as on SIGHUP",
               now.run_config->path);
  return true;
}

}  // namespace evalcar::cli
