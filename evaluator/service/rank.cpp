#include "evaluator/service/rank.h"

#include <charconv>
#include <string_view>

namespace evalcar::service {
namespace {

constexpr int kMostRanks = 65536;

Result<int> read_number(const std::function<const char*(const char*)>& variable, const char* name,
                        int least, int otherwise) {
  const char* const told = variable(name);
  if (told == nullptr || *told == 0) return otherwise;
  const std::string_view text(told);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < least || value >= kMostRanks) {
    return make_error(ErrorCode::kInvalidArgument,
                      std::string(name) + "=" + told + ": expected a whole number from " +
                          std::to_string(least) + " on, or no such variable");
  }
  return value;
}

}  // namespace

Result<Rank> read_rank(const std::function<const char*(const char*)>& variable) {
  Rank rank;
  EVALCAR_ASSIGN_OR_RETURN(rank.local, read_number(variable, "LOCAL_RANK", 0, 0));
  EVALCAR_ASSIGN_OR_RETURN(rank.rank, read_number(variable, "RANK", 0, 0));
  EVALCAR_ASSIGN_OR_RETURN(rank.world, read_number(variable, "WORLD_SIZE", 1, 1));
  if (rank.rank >= rank.world) {
    return make_error(ErrorCode::kInvalidArgument,
                      "RANK=" + std::to_string(rank.rank) + " with WORLD_SIZE=" +
                          std::to_string(rank.world) + ": expected a rank below the world's size");
  }
  if (rank.world > 1) {
    return make_error(ErrorCode::kUnsupported,
                      "WORLD_SIZE=" + std::to_string(rank.world) +
                          ": an evaluation cannot be spread over several devices yet; expected 1");
  }
  return rank;
}

std::string device_of_rank(const std::string& device, const Rank& rank) {
  return device == "cuda" ? "cuda:" + std::to_string(rank.local) : device;
}

}  // namespace evalcar::service
