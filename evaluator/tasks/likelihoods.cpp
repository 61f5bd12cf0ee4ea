#include "evaluator/tasks/likelihoods.h"

#include <cmath>

#include "evaluator/tasks/python_json.h"

namespace evalcar::tasks {

std::string encode_likelihoods(const std::vector<Likelihood>& likelihoods) {
  Value list = Value::array();
  for (const Likelihood& one : likelihoods)
    list.push_back(Value::array({one.log_likelihood, one.is_greedy, one.tokens}));
  return list.dump();
}

Result<std::vector<Likelihood>> decode_likelihoods(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(const Value list, parse_json(text));
  const auto is_one = [](const Value& one) {
    return one.is_array() && one.size() == 3 && one[0].is_number() && one[1].is_boolean() &&
           one[2].is_number_integer() && std::isfinite(one[0].get<double>()) &&
           one[0].get<double>() <= 0 && one[2].get<std::int64_t>() > 0;
  };
  std::vector<Likelihood> likelihoods;
  if (!list.is_array()) return make_error(ErrorCode::kCorruption, "no list of likelihoods");
  for (const Value& one : list) {
    if (!is_one(one))
      return make_error(ErrorCode::kCorruption,
                        "no likelihood: " + one.dump() + "; expected [logarithm, greedy, tokens]");
    likelihoods.push_back({one[0].get<double>(), one[2].get<std::int64_t>(), one[1].get<bool>()});
  }
  return likelihoods;
}

Likelihood joined(const std::vector<Likelihood>& likelihoods) {
  Likelihood all{.is_greedy = true};
  for (const Likelihood& one : likelihoods) {
    all.log_likelihood += one.log_likelihood;
    all.tokens += one.tokens;
    all.is_greedy = all.is_greedy && one.is_greedy;
  }
  return all;
}

}  // namespace evalcar::tasks
