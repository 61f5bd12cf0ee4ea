// Addresses of the user's that we send something to.
#pragma once

#include <string>

#include "store/base/result.h"

namespace evalcar::config {

/// Whether results can be posted to it: http or https, a host, no name or password in it (secrets
/// come from files), no blanks or control characters, at most 2,000 bytes.
Status check_http_url(const std::string& url);

}  // namespace evalcar::config
