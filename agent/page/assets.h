// What the page is made of, embedded at build time: the program needs no files beside it, and the
// page asks nobody outside for anything.
#pragma once

#include <string_view>

namespace evalcar::page::assets {

extern const std::string_view kIndex;       ///< index.html, with `<!--head-->` and `<!--scripts-->`
extern const std::string_view kScript;      ///< page.js
extern const std::string_view kStyle;       ///< page.css
extern const std::string_view kPlotScript;  ///< dygraphs
extern const std::string_view kPlotStyle;
extern const std::string_view kPlotLicence;

}  // namespace evalcar::page::assets
