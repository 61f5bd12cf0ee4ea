// One HTTP POST, by libcurl, which is loaded only when there is something to post: linking it would
// cost every command some forty libraries at its start.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/base/result.h"

namespace evalcar::webhook {

struct Answer {
  int status = 0;                       ///< HTTP's
  std::optional<double> retry_after_s;  ///< what the receiver asked for
  std::string location;                 ///< of a redirect; it is not followed
};

/// Something that posts; the real one, or a test's. Used by one thread at a time.
class Poster {
 public:
  virtual ~Poster() = default;
  /// Blocks: at most 10 s until connected and 30 s in all. `stop`: asked about once a second, and
  /// true gives it up (kCancelled). kUnavailable: no answer came, with the reason.
  virtual Result<Answer> post(const std::string& url,
                              const std::vector<std::pair<std::string, std::string>>& headers,
                              const std::string& body, const std::function<bool()>& stop) = 0;
};

/// http and https, certificates checked against the system's (or those of
/// SSL_CERT_FILE), proxies as the environment says, no
/// redirect followed, at most 64 KiB of an answer read, fields included. kUnsupported: libcurl.so.4
/// is not there.
Result<std::unique_ptr<Poster>> make_poster();

}  // namespace evalcar::webhook
