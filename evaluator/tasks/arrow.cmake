# Arrow and Parquet out of the pyarrow wheel, as imported targets of our own. The wheel's file names carry the version
# (libarrow.so.2600) and so does its ABI: another version than the pinned one is refused here.
set(EVALCAR_PYARROW_DIR "" CACHE PATH "Folder of the pyarrow package (empty: ask EVALCAR_PYTHON)")
set(EVALCAR_PYARROW_VERSION 26.0.1)
set(EVALCAR_PYARROW_SO 2600)
if(EVALCAR_PYARROW_DIR)
  set(pyarrow_root ${EVALCAR_PYARROW_DIR})
else()
  execute_process(COMMAND ${EVALCAR_PYTHON} -c "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0], end='')"
                  OUTPUT_VARIABLE pyarrow_root COMMAND_ERROR_IS_FATAL ANY)
endif()
foreach(library arrow parquet)
  if(NOT EXISTS ${pyarrow_root}/lib${library}.so.${EVALCAR_PYARROW_SO})
    message(FATAL_ERROR "pyarrow in ${pyarrow_root} is not ${EVALCAR_PYARROW_VERSION} (no lib${library}.so.${EVALCAR_PYARROW_SO}); run ./dev build, or set EVALCAR_PYTHON")
  endif()
  add_library(evalcar_${library} SHARED IMPORTED GLOBAL)
  set_target_properties(evalcar_${library} PROPERTIES
    IMPORTED_LOCATION ${pyarrow_root}/lib${library}.so.${EVALCAR_PYARROW_SO})
  target_include_directories(evalcar_${library} SYSTEM INTERFACE ${pyarrow_root}/include)
endforeach()
target_link_libraries(evalcar_parquet INTERFACE evalcar_arrow)
set(EVALCAR_ARROW_LIB_DIR ${pyarrow_root} CACHE INTERNAL "Where libarrow lies: for the run paths")
