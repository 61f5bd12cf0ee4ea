#include "store/checkpoint/tied_heads.h"

#include <algorithm>
#include <set>
#include <utility>

#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

/// The modules around a part, with their dot: "language_model." of "language_model.lm_head.weight".
std::string_view prefix_of(std::string_view tensor, const TieFlags& flags) {
  return tensor.substr(0, tensor.size() - flags.own_name.size());
}

std::string joined(std::string_view prefix, std::string_view name) {
  return std::string(prefix) + std::string(name);
}

}  // namespace

TiedHeads::TiedHeads(const TieConfig& config, std::span<const std::string_view> names)
    : config_(config), whole_(ties_of(config.architecture(), config.model_type())) {
  for (std::size_t i = 0; i < names.size(); ++i) names_.emplace(names[i], i);
}

TiedHeads::Ties TiedHeads::ties_of(std::string_view architecture, std::string_view model_type) {
  Ties found;
  const auto add = [&](const ClassTies& listed) {
    found.ties.insert(found.ties.end(), listed.ties.begin(), listed.ties.end());
    found.ties_layers = found.ties_layers || listed.ties_layers;
  };
  for (const ClassTies& listed : known_ties()) {
    if (listed.architecture == architecture) add(listed);
  }
  found.is_class = !found.ties.empty();
  if (found.is_class) return found;
  for (const ClassTies& listed : known_ties()) {
    if (listed.model_type == model_type) add(listed);
  }
  return found;
}

bool TiedHeads::has(std::string_view prefix, std::string_view name) const {
  return names_.contains(joined(prefix, name));
}

bool TiedHeads::has_module_of(const std::string& name) const {
  const std::string module = name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1);
  const auto first = names_.lower_bound(module);
  return first != names_.end() && first->first.starts_with(module);
}

/// Of several names that a class's embedding has had, the one in the files counts. A model within
/// the model has its embedding beside the head.
bool TiedHeads::is_listed(const Ties& known, std::string_view prefix, std::string_view head) const {
  const bool needs_embedding =
      !prefix.empty() || std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
        return tie.is_head && has(prefix, tie.other);
      });
  return std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
    return tie.is_head && tie.one == head && (!needs_embedding || has(prefix, tie.other));
  });
}

/// And lies beside an embedding that is called as one of that class.
bool TiedHeads::is_called_as_some_head(const TieFlags& flags, std::string_view prefix) const {
  return std::ranges::any_of(known_ties(), [&](const ClassTies& listed) {
    return std::ranges::any_of(listed.ties, [&](const KnownTie& tie) {
      return tie.is_head && tie.one == flags.own_name && has(prefix, tie.other);
    });
  });
}

HeadTie TiedHeads::tie_of(std::string_view head) const {
  const TieFlags flags = config_.flags_of(head);
  if (!flags.may_tie()) return HeadTie::kNone;
  const std::string_view prefix = prefix_of(head, flags);
  const Ties part = prefix.empty() ? Ties{} : ties_of("", flags.model_type);
  const bool of_whole = is_listed(whole_, "", head);
  const bool of_part = is_listed(part, prefix, flags.own_name);
  if (of_whole || of_part) {
    const bool do_more = flags.do_more || whole_.ties_layers || part.ties_layers;
    return do_more ? HeadTie::kKept : HeadTie::kGivenUp;
  }
  const bool is_known = whole_.is_class || !(prefix.empty() ? whole_ : part).ties.empty();
  const bool may_be_tied = !is_known && flags.said(true) && is_called_as_some_head(flags, prefix);
  return may_be_tied ? HeadTie::kKept : HeadTie::kNone;
}

void TiedHeads::add_missing(const Ties& known, const std::string& prefix,
                            std::map<std::string, std::size_t>& missing) const {
  const auto want = [&](std::string name, const std::string& source) {
    const auto found = names_.find(source);
    if (found != names_.end() && !names_.contains(name) && (known.is_class || has_module_of(name)))
      missing.emplace(std::move(name), found->second);
  };
  for (const KnownTie& tie : known.ties) {
    const auto is_other_name = [&](const KnownTie& each) {
      return each.is_head && each.other == tie.other && has(prefix, each.one);
    };
    // Which of a kind's classes it is, and which heads it has, is not known.
    if (tie.is_head && (!known.is_class || std::ranges::any_of(known.ties, is_other_name)))
      continue;
    want(joined(prefix, tie.one), joined(prefix, tie.other));
    if (tie.one.ends_with(".bias")) want(joined(prefix, tie.other), joined(prefix, tie.one));
  }
}

std::vector<TiedName> TiedHeads::missing() const {
  std::map<std::string, std::size_t> missing;
  add_missing(whole_, "", missing);
  std::set<std::string_view> prefixes;
  for (const auto& [name, index] : names_) {
    if (!may_be_output_head(name)) continue;
    const TieFlags flags = config_.flags_of(name);
    const std::string_view prefix = prefix_of(name, flags);
    if (prefix.empty() || !prefixes.insert(prefix).second) continue;
    add_missing(ties_of("", flags.model_type), std::string(prefix), missing);
  }
  std::vector<TiedName> found;
  for (const auto& [name, source] : missing) found.push_back({name, source});
  return found;
}

}  // namespace evalcar::checkpoint
