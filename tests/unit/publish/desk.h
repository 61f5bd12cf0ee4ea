// The real database, with published files in memory.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/publish/publisher.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

namespace evalcar::test {

constexpr const char* kDir = "/out/run/_evalcar";
inline const std::string kLog = std::string(kDir) + "/metrics.jsonl";

struct Desk {
  Scenario s;
  MemoryFileSystem files{s.clock};
  publish::PublisherOptions options;
  std::unique_ptr<publish::Publisher> publisher;

  Desk() {
    files.put_directory("/out/run");
    options.dir = kDir;
    options.version = "0.1.0";
    reopen();
  }
  /// As after a kill: everything from the disks alone.
  void reopen() {
    publisher.reset();
    s.reopen();
    publisher = std::make_unique<publish::Publisher>(files, s.clock, *s.store, options);
  }
  std::int64_t scored(std::int64_t step, double value, const std::string& kind = "regular") {
    const std::int64_t id = s.plan(step, {"docvqa_val"}, kind).id;
    s.bring(id, state::EvaluationState::kScored, "w" + std::to_string(step) + kind, value);
    return id;
  }
  /// Another content of that step's checkpoint.
  std::int64_t rewritten(std::int64_t step, const std::string& content, const std::string& weights,
                         double value) {
    const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(step, content)));
    const std::int64_t id = s.plan_for(again.checkpoint.id).id;
    s.bring(id, state::EvaluationState::kScored, weights, value);
    return id;
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> parsed;
    const std::string text = files.content(kLog).value_or("");
    std::size_t start = 0;
    for (std::size_t end = 0; (end = text.find('\n', start)) != std::string::npos;
         start = end + 1) {
      parsed.push_back(nlohmann::json::parse(text.substr(start, end - start)));
    }
    CHECK(start == text.size());
    return parsed;
  }
  nlohmann::json file(const std::string& name) const {
    const auto text = files.content(std::string(kDir) + "/" + name);
    REQUIRE(text.has_value());
    return nlohmann::json::parse(*text);
  }
};

}  // namespace evalcar::test
