#include "evaluator/service/recalled_task.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;
using namespace evalcar::service;

namespace {

/// The data, which say of each document what it is.
class Data final : public tasks::Task {
 public:
  explicit Data(std::string fingerprint) : fingerprint_(std::move(fingerprint)) {}
  const tasks::TaskFile& file() const override { return file_; }
  std::int64_t size() const override { return 10; }
  Result<std::vector<std::int64_t>> select(std::optional<double>, std::int64_t) const override {
    return std::vector<std::int64_t>{};
  }
  Result<tasks::Prompt> prompt(std::int64_t doc_id, std::string_view) const override {
    return tasks::Prompt{.doc_id = doc_id, .input = "read"};
  }
  Result<tasks::FewShotTexts> few_shot(std::span<const std::int64_t>, std::string_view,
                                       const tasks::FewShotOptions&) const override {
    return tasks::FewShotTexts{.inputs = {"read"}, .prompts = {}};
  }
  Result<std::string> document_json(std::int64_t) const override { return std::string("read"); }
  std::string data_fingerprint() const override { return fingerprint_; }

 private:
  tasks::TaskFile file_;
  std::string fingerprint_;
};

struct Recalled {
  int opened = 0;
  std::string there = "data 1";
  RecalledTask task{{.name = "own"},
                    {.size = 10, .data_fingerprint = "data 1", .ids = {3, 5}, .jsons = {"c", "e"}},
                    [this]() -> Result<std::unique_ptr<tasks::Task>> {
                      ++opened;
                      if (there.empty()) return make_error(ErrorCode::kNotFound, "no data");
                      return std::unique_ptr<tasks::Task>(std::make_unique<Data>(there));
                    }};
};

}  // namespace

TEST_CASE("what is known of a task is told without its data") {
  Recalled recalled;
  CHECK(recalled.task.file().name == "own");
  CHECK(recalled.task.size() == 10);
  CHECK(recalled.task.data_fingerprint() == "data 1");
  CHECK(*recalled.task.document_json(3) == "c");
  CHECK(*recalled.task.document_json(5) == "e");
  CHECK(*recalled.task.select(2.0, 4) == std::vector<std::int64_t>{4, 5});
  CHECK_FALSE(recalled.task.select(2.0, 10).has_value());

  CHECK(recalled.opened == 0);
}

TEST_CASE("the data are opened once for what is not known") {
  Recalled recalled;
  CHECK(recalled.task.prompt(3, "f")->input == "read");
  CHECK(*recalled.task.document_json(4) == "read");
  CHECK(*recalled.task.document_json(6) == "read");
  CHECK(recalled.task.few_shot({}, "f", {})->inputs.size() == 1);
  CHECK(*recalled.task.document_json(3) == "c");

  CHECK(recalled.opened == 1);
}

TEST_CASE("data that became others, or are gone, are an error of the data") {
  Recalled recalled;
  recalled.there = "data 2";
  CHECK(recalled.task.prompt(3, "f").error().code == ErrorCode::kCorruption);
  recalled.there = "";
  CHECK(recalled.task.prompt(3, "f").error().code == ErrorCode::kCorruption);
  recalled.there = "data 1";
  CHECK(recalled.task.prompt(3, "f").has_value());
}
