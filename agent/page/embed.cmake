# cmake -DPAIRS=kName=file|kName=file -DOUTPUT=x.cpp -P embed.cmake: files as string literals.
string(REPLACE "|" ";" PAIRS "${PAIRS}")
set(text "// Made by agent/page/embed.cmake.\n#include \"agent/page/assets.h\"\n\nnamespace evalcar::page::assets {\n\n")
foreach(pair IN LISTS PAIRS)
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${pair}")
  set(name ${CMAKE_MATCH_1})
  file(READ "${CMAKE_MATCH_2}" content)
  # A map that is not there would only be asked for in vain.
  string(REGEX REPLACE "\n?(//|/\\*)# sourceMappingURL=[^\n]*" "" content "${content}")
  string(APPEND text "const std::string_view ${name} = R\"evalcar_asset(${content})evalcar_asset\";\n\n")
endforeach()
string(APPEND text "}  // namespace evalcar::page::assets\n")
file(WRITE ${OUTPUT} "${text}")
