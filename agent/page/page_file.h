// The page as one file that anybody can open, send or keep: no server, no network.
#pragma once

#include <string>
#include <string_view>

namespace evalcar::page {

/// The whole page with `data` (page_data.h) in it. Its Content-Security-Policy allows the scripts
/// and styles of this file, by their hashes, and nothing else: whatever stands in `data` is shown
/// as text.
std::string page_file(std::string_view data);

/// The page that asks its server for what it shows (page/data, page/events).
struct LivePage {
  std::string html;
  std::string
      policy;  ///< its Content-Security-Policy: its own scripts, styles and server, no frames
};
const LivePage& live_page();

/// RFC 4648, with padding. Exposed for its test.
std::string base64(std::string_view bytes);

}  // namespace evalcar::page
