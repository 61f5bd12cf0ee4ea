// The one table of configuration keys: it drives parsing, checking, printing, `evalcar init` and
// the documentation.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "agent/config/settings.h"
#include "agent/config/values.h"
#include "store/base/result.h"

namespace evalcar::config {

/// What a key does in this version.
enum class Effect {
  kActive,
  kIgnored,  ///< another value than the default is accepted with a warning
  kOfUnit,   ///< the same; `init --systemd` hands it to the unit
  kRefused,  ///< another value than the default is an error: obeying it only in part would mislead
};

struct Key {
  std::string_view name;     ///< "watch.poll_interval"
  std::string_view initial;  ///< TOML literal of the default; empty: not set
  std::string_view example;  ///< TOML literal shown by `init` when there is no default
  std::string_view help;     ///< one or two sentences
  /// Checks and stores the value. The error says what was expected.
  Status (*assign)(Settings&, const Value&);
  Effect effect = Effect::kActive;

  std::string_view section() const { return name.substr(0, name.find('.')); }
  std::string_view leaf() const { return name.substr(name.find('.') + 1); }
};

/// All keys, grouped by section, in the order of the documentation.
std::span<const Key> keys();
const Key* find_key(std::string_view name);
/// The known name with the smallest edit distance.
std::string_view nearest_key(std::string_view name);

}  // namespace evalcar::config
