#include "store/checkpoint/tied_heads.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

/// The modules around a part, with their dot: "language_model." of "language_model.lm_head.weight".
std::string_view prefix_of(std::string_view tensor, const TieFlags& flags) {
  return tensor.substr(0, tensor.size() - flags.own_name.size());
}

/// "embed_tokens.weight" of "model.embed_tokens.weight".
std::string_view last_parts(std::string_view tensor) {
  const std::size_t dot = tensor.rfind('.', tensor.rfind('.') - 1);
  return dot == std::string_view::npos ? tensor : tensor.substr(dot + 1);
}

std::string joined(std::string_view prefix, std::string_view name) {
  return std::string(prefix) + std::string(name);
}

}  // namespace

ListedTies listed_ties_of(std::string_view architecture, std::string_view model_type) {
  ListedTies found;
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

TiedHeads::TiedHeads(const TieConfig& config, std::span<const std::string_view> names)
    : config_(config), whole_(listed_ties_of(config.architecture(), config.model_type())) {
  for (std::size_t i = 0; i < names.size(); ++i) names_.emplace(names[i], i);
}

bool TiedHeads::has(std::string_view prefix, std::string_view name) const {
  return names_.contains(joined(prefix, name));
}

bool TiedHeads::has_module_of(const std::string& name) const {
  const std::string module = name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1);
  const auto first = names_.lower_bound(module);
  return first != names_.end() && first->first.starts_with(module);
}

/// With its embedding in the files: by the name that belongs to the head's, by one of a module that
/// shares it, or by another one that the class's embedding has had. A head alone may be the tied
/// weight under its other name.
bool TiedHeads::is_listed(const Ties& known, std::string_view prefix, std::string_view head) const {
  const auto is_shared = [&](std::string_view embedding) {
    return std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
      return !tie.is_head && tie.other == embedding && has(prefix, tie.one);
    });
  };
  const auto has_embedding = [&](const KnownTie& own) {
    return is_shared(own.other) || std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
             return tie.is_head && has(prefix, tie.other) &&
                    (tie.one == head ||
                     (!has(prefix, tie.one) && last_parts(tie.other) == last_parts(own.other)));
           });
  };
  return std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
    return tie.is_head && tie.one == head && has_embedding(tie);
  });
}

/// A further head, that the files hold as its embedding alone: of a kind of model it is not known
/// whether this one has it.
bool TiedHeads::lacks_other_head(const Ties& known, std::string_view prefix,
                                 std::string_view head) const {
  if (known.is_class) return false;
  const auto is_of_head = [&](std::string_view embedding) {
    return std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
      return tie.is_head && tie.one == head && tie.other == embedding;
    });
  };
  return std::ranges::any_of(known.ties, [&](const KnownTie& tie) {
    return tie.is_head && has(prefix, tie.one) != has(prefix, tie.other) && tie.one != head &&
           !is_of_head(tie.other);
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
  const Ties part = prefix.empty() ? Ties{} : listed_ties_of("", flags.model_type);
  const bool of_whole = is_listed(whole_, "", head);
  const bool of_part = is_listed(part, prefix, flags.own_name);
  if (of_whole || of_part) {
    const bool do_more = flags.do_more || whole_.ties_layers || part.ties_layers ||
                         (of_whole ? lacks_other_head(whole_, "", head)
                                   : lacks_other_head(part, prefix, flags.own_name));
    return do_more ? HeadTie::kKept : HeadTie::kGivenUp;
  }
  const bool is_known = whole_.is_class || !(prefix.empty() ? whole_ : part).ties.empty();
  const bool is_called_so = std::ranges::any_of(
      whole_.ties, [&](const KnownTie& tie) { return tie.is_head && tie.one == head; });
  const bool may_be_tied = is_called_so || (!is_known && is_called_as_some_head(flags, prefix));
  return may_be_tied ? HeadTie::kKept : HeadTie::kNone;
}

void TiedHeads::add_missing(const Ties& known, const std::string& prefix,
                            std::map<std::string, std::size_t>& missing) const {
  const auto index_of = [&](const std::string& name) -> std::optional<std::size_t> {
    if (const auto found = names_.find(name); found != names_.end()) return found->second;
    const auto added = missing.find(name);
    return added == missing.end() ? std::nullopt : std::optional(added->second);
  };
  const auto want = [&](const std::string& name, const std::string& source) {
    const auto found = index_of(source);
    if (!found || index_of(name) || !(known.is_class || has_module_of(name))) return false;
    return missing.emplace(name, *found).second;
  };
  // One that was added may be the source of others.
  for (bool added = true; added;) {
    added = false;
    for (const KnownTie& tie : known.ties) {
      const std::string one = joined(prefix, tie.one);
      const std::string other = joined(prefix, tie.other);
      if (tie.is_head) continue;
      // Where two modules have their own, they share none.
      const auto shared = std::ranges::count_if(known.ties, [&](const KnownTie& each) {
        return !each.is_head && each.other == tie.other && has(prefix, each.one);
      });
      added = want(one, other) || (shared == 1 && want(other, one)) || added;
    }
  }
  // Which heads a model has of which its kind alone is known, is not known.
  if (!known.is_class) return;
  for (const KnownTie& tie : known.ties) {
    // Of several names that a weight has had, one is enough.
    const auto has_any = [&](std::string_view KnownTie::* name) {
      return std::ranges::any_of(known.ties, [&](const KnownTie& each) {
        return each.is_head && last_parts(each.other) == last_parts(tie.other) &&
               index_of(joined(prefix, each.*name));
      });
    };
    if (!tie.is_head) continue;
    if (!has_any(&KnownTie::one)) want(joined(prefix, tie.one), joined(prefix, tie.other));
    if (!has_any(&KnownTie::other) && !is_listed(known, prefix, tie.one))
      want(joined(prefix, tie.other), joined(prefix, tie.one));
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
    add_missing(listed_ties_of("", flags.model_type), std::string(prefix), missing);
  }
  std::vector<TiedName> found;
  for (const auto& [name, source] : missing) found.push_back({name, source});
  return found;
}

}  // namespace evalcar::checkpoint
