// Who may ask: the Host and Origin fields (a page in somebody's browser must not reach us), and the
// token.
//
//   Host    must be a name of ours: a page whose own name was made to point at us (DNS rebinding)
//           sends that name
//   Origin  must be ourselves, where it is sent at all: browsers send it with what pages start;
//           https:// only of a host that is listed: behind a proxy that ends TLS
//   token   as "Authorization: Bearer TOKEN", or as the password of Basic, so that clients that
//           know only URLs send it (http://evalcar:TOKEN@host:8000)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/http/message.h"
#include "agent/http/network.h"
#include "store/base/file_system.h"

namespace evalcar::http {

struct AccessRules {
  std::string token;                ///< "": none is asked for
  std::vector<Network> allow_from;  ///< need no token
  /// Besides localhost and the address that was asked: names in lower case, addresses as text.
  std::vector<std::string> hosts;
  std::vector<std::uint32_t> uids;  ///< of a unix socket's peers that are answered
};

/// Why a request is refused; absent: it is answered. Takes the same time whatever of the token is
/// right.
std::optional<Response> refusal(const AccessRules& rules, const Head& head, const Peer& peer);

/// The secret that an Authorization field carries; absent: none.
std::optional<std::string> secret_of(std::string_view authorization);

/// The token of a file: its first line. Refused: empty, shorter than 16 characters, longer than
/// 1,000, with blanks or control characters, or of a file that everybody may read.
Result<std::string> read_token(const FileSystem& files, const std::string& path);

}  // namespace evalcar::http
