#include "agent/run/trainer_state.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "store/checkpoint/json_scan.h"

namespace evalcar::run {
namespace {

using Json = nlohmann::json;

/// The log of a long run takes some ten megabytes.
constexpr std::uint64_t kMaxTrainerState = std::uint64_t{128} << 20U;
constexpr std::uint64_t kMaxConfig = std::uint64_t{1} << 20U;
constexpr double kLargestStep = 1e15;

/// Takes the numbers at the top of a document, and passes everything else over.
class NumbersAtTop final : public nlohmann::json_sax<Json> {
 public:
  std::optional<double> value_of(std::string_view key) const {
    for (const auto& [name, value] : numbers_) {
      if (name == key) return value;
    }
    return std::nullopt;
  }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override { return take(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return take(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return take(value); }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return ++depth_ > 0; }
  bool key(string_t& name) override {
    if (depth_ == 1) key_ = name;
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t /*elements*/) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  bool take(double value) {
    if (depth_ == 1 && numbers_.size() < 100) numbers_.emplace_back(key_, value);
    return true;
  }

  int depth_ = 0;
  std::string key_;
  std::vector<std::pair<std::string, double>> numbers_;
};

/// 0 for what is no count of steps.
std::int64_t steps(std::optional<double> value) {
  if (!value.has_value() || !(*value >= 1) || *value > kLargestStep) return 0;
  return static_cast<std::int64_t>(*value);
}

}  // namespace

std::optional<TrainerState> read_trainer_state(const FileSystem& files, const std::string& folder) {
  auto text = read_file(files, join_path(folder, "trainer_state.json"), kMaxTrainerState);
  if (!text.has_value()) return std::nullopt;
  checkpoint::replace_non_finite(*text);
  NumbersAtTop numbers;
  try {
    if (!Json::sax_parse(*text, &numbers)) return std::nullopt;
  } catch (const std::exception&) {  // out of memory: it is not known, then
    return std::nullopt;
  }
  TrainerState state;
  state.global_step = steps(numbers.value_of("global_step"));
  state.max_steps = steps(numbers.value_of("max_steps"));
  state.save_steps = steps(numbers.value_of("save_steps"));
  state.epoch = numbers.value_of("epoch");
  if (state.epoch.has_value() && !(*state.epoch > 0 && *state.epoch < kLargestStep)) {
    state.epoch.reset();
  }
  return state;
}

std::int64_t save_steps_of_lmms_engine(const FileSystem& files, const std::string& output_dir) {
  const auto text = read_file(files, join_path(output_dir, "config.yaml"), kMaxConfig);
  if (!text.has_value()) return 0;
  // One plain line of what yaml.dump writes.
  constexpr std::string_view kKey = "save_steps: ";
  std::int64_t found = 0;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    std::string_view line = std::string_view(*text).substr(begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    begin = end + 1;
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(kKey.size());
    std::int64_t number = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
    if (parsed.ec == std::errc{} && parsed.ptr == line.data() + line.size() && number > 0) {
      found = number;
    }
  }
  return found;
}

}  // namespace evalcar::run
