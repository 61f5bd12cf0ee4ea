#include "agent/cli/diff_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "agent/cli/transfer_progress.h"
#include "store/base/text.h"
#include "store/checkpoint/diff_plans.h"

namespace evalcar::cli {
namespace {

using checkpoint::TensorDigest;
using OrderedJson = nlohmann::ordered_json;

using Pair = std::pair<std::size_t, std::size_t>;

OrderedJson form_of(const TensorDigest& tensor) {
  return {{"dtype", checkpoint::dtype_name(tensor.dtype)}, {"shape", tensor.shape}};
}

bool is_complex(checkpoint::DType dtype) {
  return checkpoint::dtype_name(dtype).starts_with("complex");
}

bool values_comparable(const TensorDigest& a, const TensorDigest& b) {
  return a.shape == b.shape && checkpoint::is_comparable(a.dtype) &&
         checkpoint::is_comparable(b.dtype) && is_complex(a.dtype) == is_complex(b.dtype);
}

OrderedJson number_or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

/// Fills in by how much the values of `pairs` differ, which are entries[where[i]] of the report.
Status add_values(const DiffInput& input, const std::vector<Pair>& pairs,
                  const std::vector<std::size_t>& where, OrderedJson& entries) {
  std::uint64_t bytes = 0;
  for (const auto& [a, b] : pairs) {
    bytes += input.here.tensors[a].bytes() + input.there.tensors[b].bytes();
  }
  TransferProgress bar("compare", bytes);
  EVALCAR_ASSIGN_OR_RETURN(
      const auto differences,
      checkpoint::diff_values(input.files, input.here, input.there, pairs, input.threads,
                              [&](std::uint64_t done) { bar.show(done); }));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    OrderedJson& entry = entries[where[i]];
    entry["elements_changed"] = differences[i].elements;
    entry["max_abs"] = number_or_null(differences[i].max_abs);
    entry["relative_l2"] = number_or_null(differences[i].relative_l2);
  }
  return {};
}

std::string printed(const OrderedJson& value) {
  if (!value.is_number()) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value.get<double>());
  return text.data();
}

std::string printed_form(const OrderedJson& form) {
  return form["dtype"].get<std::string>() + " " + form["shape"].dump();
}

}  // namespace

Result<OrderedJson> diff_json(const DiffInput& input) {
  std::map<std::string, std::size_t> rest;
  for (std::size_t i = 0; i < input.there_digests.size(); ++i) {
    rest.emplace(input.there_digests[i].name, i);
  }
  OrderedJson different = OrderedJson::array();
  OrderedJson only_here = OrderedJson::array();
  std::vector<Pair> pairs;
  std::vector<std::size_t> where;
  for (std::size_t i = 0; i < input.here_digests.size(); ++i) {
    const TensorDigest& mine = input.here_digests[i];
    const auto found = rest.find(mine.name);
    if (found == rest.end()) {
      only_here.push_back(mine.name);
      continue;
    }
    const std::size_t j = found->second;
    rest.erase(found);
    const TensorDigest& theirs = input.there_digests[j];
    const bool same_form = mine.dtype == theirs.dtype && mine.shape == theirs.shape;
    if (same_form && mine.sha256 == theirs.sha256) continue;
    if (values_comparable(mine, theirs)) {
      pairs.emplace_back(i, j);
      where.push_back(different.size());
    }
    different.push_back({{"name", mine.name},
                         {"what", mine.dtype != theirs.dtype   ? "dtype"
                                  : mine.shape != theirs.shape ? "shape"
                                                               : "values"},
                         {"here", form_of(mine)},
                         {"there", form_of(theirs)},
                         {"elements_changed", nullptr},
                         {"max_abs", nullptr},
                         {"relative_l2", nullptr}});
  }
  EVALCAR_RETURN_IF_ERROR(add_values(input, pairs, where, different));
  OrderedJson only_there = OrderedJson::array();
  for (const auto& [name, index] : rest) only_there.push_back(name);
  const bool equal = different.empty() && only_here.empty() && only_there.empty();
  return OrderedJson{{"other", input.other},
                     {"equal", equal},
                     {"different", std::move(different)},
                     {"only_here", std::move(only_here)},
                     {"only_there", std::move(only_there)}};
}

void print_diff(const OrderedJson& diff, std::ostream& out) {
  const auto name_of = [](const OrderedJson& name) {
    return printable(name.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  };
  out << "compared with " << printable(diff["other"].get<std::string>()) << ": "
      << (diff["equal"].get<bool>() ? "equal" : "different") << "\n";
  std::vector<const OrderedJson*> entries;
  for (const OrderedJson& entry : diff["different"]) entries.push_back(&entry);
  const auto relative = [](const OrderedJson& entry) {
    return entry["relative_l2"].is_number() ? entry["relative_l2"].get<double>() : -1.0;
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const OrderedJson* a, const OrderedJson* b) {
    return relative(*a) > relative(*b);
  });
  if (!entries.empty()) out << "  relative L2     max |a-b|   elements  tensor\n";
  for (const OrderedJson* const entry : entries) {
    const OrderedJson& changed = (*entry)["elements_changed"];
    std::array<char, 96> numbers{};
    std::snprintf(numbers.data(), numbers.size(), "  %-11s  %12s  %9s  ",
                  printed((*entry)["relative_l2"]).c_str(), printed((*entry)["max_abs"]).c_str(),
                  changed.is_null() ? "-" : changed.dump().c_str());
    out << numbers.data() << name_of((*entry)["name"]);
    if ((*entry)["what"] != "values") {
      out << "  " << printed_form((*entry)["here"]) << " here, " << printed_form((*entry)["there"])
          << " there";
    }
    out << "\n";
  }
  for (const OrderedJson& name : diff["only_here"]) out << "  " << name_of(name) << " only here\n";
  for (const OrderedJson& name : diff["only_there"]) {
    out << "  " << name_of(name) << " only there\n";
  }
}

}  // namespace evalcar::cli
