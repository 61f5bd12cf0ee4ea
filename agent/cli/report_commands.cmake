# `results` and `status` as a library of their own, for the program and for the tests.
add_library(evalcar_cli_report STATIC
  ${CMAKE_CURRENT_LIST_DIR}/database_choice.cpp
  ${CMAKE_CURRENT_LIST_DIR}/plot.cpp
  ${CMAKE_CURRENT_LIST_DIR}/named_file.cpp
  ${CMAKE_CURRENT_LIST_DIR}/results_command.cpp
  ${CMAKE_CURRENT_LIST_DIR}/status_command.cpp
  ${CMAKE_CURRENT_LIST_DIR}/step_comparison.cpp)
add_library(evalcar::cli_report ALIAS evalcar_cli_report)
target_link_libraries(evalcar_cli_report
  PUBLIC evalcar::base evalcar::state
  PRIVATE evalcar::checks evalcar::checkpoint evalcar::page evalcar::publish evalcar::report nlohmann_json::nlohmann_json)
