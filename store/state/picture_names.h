// Which pictures the samples of a database have: the files are shared by all databases of a
// machine.
#pragma once

#include <set>
#include <string>

#include "store/base/result.h"

namespace evalcar::state {

/// Adds the names that samples in this database have (protocol::Scored::pictures). One of a schema
/// before version 9 has none. Errors as Reader::open's: nothing is known then.
Status add_picture_names(const std::string& database, std::set<std::string>& names);

}  // namespace evalcar::state
