# `inspect` and `merge` as a library of their own, for the program and for the parity tests' probe.
add_library(evalcar_cli_checkpoint STATIC
  ${CMAKE_CURRENT_LIST_DIR}/checkpoint_choice.cpp
  ${CMAKE_CURRENT_LIST_DIR}/diff_report.cpp
  ${CMAKE_CURRENT_LIST_DIR}/inspect_command.cpp
  ${CMAKE_CURRENT_LIST_DIR}/inspect_report.cpp
  ${CMAKE_CURRENT_LIST_DIR}/merge_command.cpp
  ${CMAKE_CURRENT_LIST_DIR}/merge_sources.cpp
  ${CMAKE_CURRENT_LIST_DIR}/progress_line.cpp
  ${CMAKE_CURRENT_LIST_DIR}/transfer_progress.cpp)
add_library(evalcar::cli_checkpoint ALIAS evalcar_cli_checkpoint)
target_link_libraries(evalcar_cli_checkpoint
  PUBLIC evalcar::checkpoint
  PRIVATE evalcar::checks nlohmann_json::nlohmann_json spdlog::spdlog Threads::Threads)
