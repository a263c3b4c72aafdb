# The sycl backend: DPC++ (icpx, as on Aurora), or another compiler with DPC++'s headers and runtime, whose kernels are then
# compiled when the program starts.
target_sources(fabricbench PRIVATE
  fabricbench/device/device_sycl.cpp
  fabricbench/device/level_zero.cpp
  fabricbench/device/product_sycl.cpp
  fabricbench/device/sycl_host_memory.cpp
  fabricbench/device/sycl_run_time_kernels.cpp
  fabricbench/transports/copy.cpp
  fabricbench/transports/staging.cpp)
target_compile_definitions(fabricbench PRIVATE FABRICBENCH_GPU FABRICBENCH_SYCL)

set(SYCL_ROOT "$ENV{CMPLR_ROOT}" CACHE PATH "Where the headers and the library of SYCL are, for a compiler without them")
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag("-fsycl -Werror" FABRICHECK_HAS_FSYCL)
if(FABRICHECK_HAS_FSYCL AND CMAKE_CXX_COMPILER_ID STREQUAL "IntelLLVM")
  # For these targets the kernels are compiled now; without any, the driver compiles them when they are first used.
  if(SYCL_TARGETS)
    list(JOIN SYCL_TARGETS "," targets)
    set(targets -fsycl-targets=${targets})
  endif()
  target_compile_options(fabricbench PRIVATE -fsycl ${targets})
  target_link_options(fabricbench PRIVATE -fsycl ${targets})
else()
  find_path(SYCL_INCLUDE_DIR sycl/sycl.hpp HINTS ${SYCL_ROOT} PATH_SUFFIXES include REQUIRED)
  find_library(SYCL_LIBRARY sycl HINTS ${SYCL_ROOT} PATH_SUFFIXES lib REQUIRED)
  message(STATUS "no DPC++: the kernels are compiled when fabricbench starts")
  target_include_directories(fabricbench SYSTEM PRIVATE ${SYCL_INCLUDE_DIR})
  target_link_libraries(fabricbench PRIVATE ${SYCL_LIBRARY})
  get_filename_component(sycl_directory "${SYCL_LIBRARY}" DIRECTORY)
  set_property(TARGET fabricbench APPEND PROPERTY BUILD_RPATH "${sycl_directory}")
  # libsycl and libccl name libraries beside them and not where they are: they are found by the program's path. Last, as
  # MPI's wrapper may ask for the other kind of path.
  set(fabricbench_last_libraries -Wl,--disable-new-dtags)

  set(texts "// Written by sycl.cmake.\n#pragma once\n")
  foreach(text kSyclKernelsText sycl_kernels kPatternText pattern)
    if(text MATCHES "^k")
      set(name ${text})
    else()
      set(header ${CMAKE_CURRENT_SOURCE_DIR}/fabricbench/device/${text}.hpp)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
      file(READ ${header} content)
      string(APPEND texts "inline constexpr char ${name}[] = R\"kernels(${content})kernels\";\n")
    endif()
  endforeach()
  # Unlike file(WRITE) this leaves a file with that content as it is, so that nothing is compiled again.
  file(CONFIGURE OUTPUT sycl_kernel_texts.hpp CONTENT "${texts}" @ONLY)
  target_include_directories(fabricbench PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
endif()
target_link_libraries(fabricbench PRIVATE ${CMAKE_DL_LIBS})

find_path(LEVEL_ZERO_INCLUDE_DIR level_zero/ze_api.h HINTS ${LEVEL_ZERO_ROOT} PATH_SUFFIXES include)
if(LEVEL_ZERO_INCLUDE_DIR)
  target_include_directories(fabricbench SYSTEM PRIVATE ${LEVEL_ZERO_INCLUDE_DIR})
  target_compile_definitions(fabricbench PRIVATE FABRICBENCH_LEVEL_ZERO)
else()
  message(STATUS "no headers of Level Zero: the copy and kernel transports will not reach other processes")
endif()

if(FABRICHECK_CCL)
  find_path(CCL_INCLUDE_DIR oneapi/ccl.hpp HINTS ${CCL_ROOT} $ENV{CCL_ROOT} PATH_SUFFIXES include REQUIRED)
  find_library(CCL_LIBRARY ccl HINTS ${CCL_ROOT} $ENV{CCL_ROOT} PATH_SUFFIXES lib REQUIRED)
  target_sources(fabricbench PRIVATE fabricbench/transports/ccl_oneccl.cpp)
  # oneCCL's headers show its SYCL interface to icpx only, unless they are told.
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "IntelLLVM")
    set_source_files_properties(fabricbench/transports/ccl_oneccl.cpp PROPERTIES
      COMPILE_DEFINITIONS "CCL_ENABLE_SYCL;CCL_ENABLE_ZE")
  endif()
  target_include_directories(fabricbench SYSTEM PRIVATE ${CCL_INCLUDE_DIR})
  target_compile_definitions(fabricbench PRIVATE FABRICBENCH_CCL)
  target_link_libraries(fabricbench PRIVATE ${CCL_LIBRARY})
  get_filename_component(ccl_directory "${CCL_LIBRARY}" DIRECTORY)
  set_property(TARGET fabricbench APPEND PROPERTY BUILD_RPATH "${ccl_directory}")
endif()
target_link_libraries(fabricbench PRIVATE ${fabricbench_last_libraries})
