#include "agent/service/reload.h"

#include <algorithm>

namespace evalcar::agent_service {
namespace {

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text.append(text.empty() ? "" : ", ").append(path);
  return text;
}

Status refuse(const std::string& key, const std::string& now, const std::string& next) {
  return make_error(ErrorCode::kInvalidArgument,
                    key + " is " + (next.empty() ? "not set" : next) + " now, but was " +
                        (now.empty() ? "not set" : now) +
                        " when the agent started; only a restart changes it");
}

}  // namespace

Status check_reload(const config::Settings& now, const config::Settings& next) {
  auto before = now.watch.output_dir;
  auto after = next.watch.output_dir;
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  if (before != after) return refuse("watch.output_dir", joined(before), joined(after));
  if (now.store.path != next.store.path) {
    return refuse("store.path", now.store.path, next.store.path);
  }
  return {};
}

}  // namespace evalcar::agent_service
