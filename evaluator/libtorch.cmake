# libtorch as an interface target of our own, from the wheel that the virtual environment holds. The wheel's CMake package
# is not used: it aliases other projects' targets and bakes in paths that do not exist.
set(EVALCAR_TORCH_DIR "" CACHE PATH "Folder of the torch package (empty: ask EVALCAR_PYTHON)")
set(EVALCAR_TORCH_VERSION 2.11.0)
if(EVALCAR_TORCH_DIR)
  set(torch_root ${EVALCAR_TORCH_DIR})
else()
  execute_process(COMMAND ${EVALCAR_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
                  OUTPUT_VARIABLE torch_root COMMAND_ERROR_IS_FATAL ANY)
endif()
file(READ ${torch_root}/version.py torch_version_py)
if(NOT torch_version_py MATCHES "__version__ = '${EVALCAR_TORCH_VERSION}")
  message(FATAL_ERROR "torch in ${torch_root} is not ${EVALCAR_TORCH_VERSION}; run ./dev build, or set EVALCAR_PYTHON")
endif()

# CUDA parts are built where there is a CUDA compiler; without one the evaluator is for the CPU alone.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know how to ask nvcc for 20; .cu files stay free of other headers
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # the wheel's, below: never two in one process
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(EVALCAR_CUDA ON)
  message(STATUS "evaluator: with CUDA parts for sm_80 and sm_90 (${CMAKE_CUDA_COMPILER})")
else()
  set(EVALCAR_CUDA OFF)
  message(STATUS "evaluator: no CUDA compiler found, built for the CPU")
endif()

add_library(evalcar_libtorch INTERFACE)
add_library(evalcar::libtorch ALIAS evalcar_libtorch)
# -idirafter: the wheel carries other projects' headers (fmt, protobuf, …), which must not hide the system's.
foreach(dir ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
  target_compile_options(evalcar_libtorch INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${dir}>" "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-isystem ${dir}>")
endforeach()
# Headers that could include every operator take only those that they need.
target_compile_definitions(evalcar_libtorch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_directories(evalcar_libtorch INTERFACE ${torch_root}/lib)
if(EVALCAR_CUDA)
  target_compile_definitions(evalcar_libtorch INTERFACE EVALCAR_CUDA=1)
  # The toolkit's headers; its libraries are those of the wheel (never two cudarts or NCCLs in one process).
  target_include_directories(evalcar_libtorch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  file(GLOB cudart ${torch_root}/../nvidia/*/lib/libcudart.so.*)
  list(LENGTH cudart cudart_count)
  if(NOT cudart_count EQUAL 1)
    message(FATAL_ERROR "expected one libcudart beside torch in ${torch_root}/../nvidia, found: ${cudart}")
  endif()
  cmake_path(GET cudart PARENT_PATH EVALCAR_CUDART_DIR)
  target_link_libraries(evalcar_libtorch INTERFACE ${cudart})
  # --no-as-needed: nothing refers to libtorch_cuda by symbol; it registers its operators when it is loaded.
  target_link_libraries(evalcar_libtorch INTERFACE
    "-Wl,--push-state,--no-as-needed" torch_cpu torch_cuda torch c10 c10_cuda "-Wl,--pop-state")
else()
  target_link_libraries(evalcar_libtorch INTERFACE "-Wl,--push-state,--no-as-needed" torch_cpu torch c10 "-Wl,--pop-state")
endif()
# Found from the build folder by this absolute path; the installed program has a relative one (see install rules).
set(EVALCAR_TORCH_LIB_DIR ${torch_root}/lib)
set(CMAKE_BUILD_RPATH ${torch_root}/lib ${EVALCAR_CUDART_DIR})
