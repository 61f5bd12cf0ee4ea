// Hints that a test gives.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "agent/watch/notifier.h"

namespace evalcar::testing {

class FakeNotifier final : public watch::Notifier {
 public:
  bool watch(const std::string& folder) override {
    if (!works) return false;
    watched.insert(folder);
    return true;
  }
  void unwatch(const std::string& folder) override { watched.erase(folder); }
  Hints take() override { return std::exchange(hints, {}); }
  int descriptor() const override { return -1; }
  std::string trouble() const override { return why_not; }

  bool works = true;
  std::string why_not;
  std::set<std::string> watched;
  Hints hints;
};

}  // namespace evalcar::testing
