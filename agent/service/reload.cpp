#include "agent/service/reload.h"

#include <algorithm>
#include <string_view>

namespace evalcar::agent_service {
namespace {

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text.append(text.empty() ? "" : ", ").append(path);
  return text;
}

std::string refusal(const std::string& key, const std::string& now, const std::string& next) {
  return key + " is " + (next.empty() ? "not set" : next) + " now, but was " +
         (now.empty() ? "not set" : now) + " when the agent started";
}

/// An address may hold a password or a token.
bool may_hold_secret(std::string_view key) { return key.ends_with("_url"); }

}  // namespace

Status check_reload(const config::Settings& now, const config::Settings& next) {
  auto before = now.watch.output_dir;
  auto after = next.watch.output_dir;
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  std::string refused;
  const auto refuse = [&refused](const std::string& text) {
    refused.append(refused.empty() ? "" : "; ").append(text);
  };
  if (before != after) refuse(refusal("watch.output_dir", joined(before), joined(after)));
  if (now.store.path != next.store.path) {
    refuse(refusal("store.path", now.store.path, next.store.path));
  }
  if (now.server != next.server) {
    refuse("a key of [server] is another one now");
  }
  if (refused.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument, refused + "; only a restart changes it");
}

std::vector<std::string> changes_of(const config::Config& now, const config::Config& next) {
  std::vector<std::string> changes;
  const auto shown = [](const std::string& literal) {
    return literal.empty() ? std::string("not set") : literal;
  };
  for (const config::Entry& after : next.entries) {  // both have all keys
    const auto before = std::ranges::find(now.entries, after.key, &config::Entry::key);
    const std::string old = before == now.entries.end() ? "" : before->literal;
    if (old == after.literal) continue;
    std::string change(after.key->name);
    if (!may_hold_secret(after.key->name))
      change += ": " + shown(old) + " -> " + shown(after.literal);
    changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace evalcar::agent_service
