# SPDX-License-Identifier: MIT
# The libraries, put together from the objects of the folders.
# The version of the ABI: soname, symbols, Debian's package and CMake's version file. While the major version is
# 0, a minor one may change the ABI.
set(MOE_ABI_VERSION ${PROJECT_VERSION_MAJOR})
set(MOE_COMPATIBILITY SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(MOE_ABI_VERSION 0.${PROJECT_VERSION_MINOR})
  set(MOE_COMPATIBILITY SameMinorVersion)
endif()
set(MOE_EXPORTS ${PROJECT_BINARY_DIR}/exports.map)
configure_file(${CMAKE_CURRENT_LIST_DIR}/exports.map.in ${MOE_EXPORTS} @ONLY)

get_property(core GLOBAL PROPERTY MOE_CORE_OBJECTS)
get_property(convert GLOBAL PROPERTY MOE_CONVERT_OBJECTS)

# moe_installed(target [rpath]): what is installed has its RUNPATH from the beginning. CMake would pad
# one that it changes on installation with ":", and an empty element means the current directory.
function(moe_installed target)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${ARGN}")
endfunction()

# moe_library(target objects...): shared or, with BUILD_SHARED_LIBS=OFF, static
function(moe_library target)
  add_library(${target} ${ARGN})
  add_library(moe::${target} ALIAS ${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  if(BUILD_SHARED_LIBS)
    moe_shared(${target})
  else()
    target_compile_definitions(${target} INTERFACE $<$<PLATFORM_ID:Windows>:MOE_STATIC>)
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# A shared library is linked with these flags, where the linker knows them. Everything visible is named moe_*; a linker without
# version scripts exports that.
moe_known(MOE_SHARED_FLAGS -Wl,--version-script=${MOE_EXPORTS} -Wl,--exclude-libs,ALL
  -Wl,--gc-sections -Wl,--as-needed)
if(NOT MOE_SANITIZE)  # a sanitizer's functions come with the program
  moe_known(flags -Wl,--no-undefined)
  list(APPEND MOE_SHARED_FLAGS ${flags})
endif()

# moe_shared(target): exports what is MOE_API and named moe_*, and nothing else
function(moe_shared target)
  set_target_properties(${target} PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${MOE_ABI_VERSION}
    LINK_DEPENDS ${MOE_EXPORTS})
  target_link_options(${target} PRIVATE ${MOE_SHARED_FLAGS})
endfunction()

moe_library(moe ${core})
moe_installed(moe)
target_link_libraries(moe PRIVATE $<BUILD_INTERFACE:moe_dep_core>)
if(NOT BUILD_SHARED_LIBS)  # who links the installed archive links what it needs
  target_link_libraries(moe PRIVATE "$<INSTALL_INTERFACE:${MOE_CORE_NEEDS}>")
endif()

# moe_archive(target objects...): a library with all symbols of its objects and the headers of the sources
function(moe_archive target)
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${ARGN})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PUBLIC moe_dep_core moe_dep_headers)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${target} SYSTEM PUBLIC ${MOE_GENERATED_DIR})
endfunction()

# The core, for the converter and the tests.
moe_archive(moe_core ${core})

if(MOE_CONVERT AND convert)
  moe_library(moe_convert ${convert})
  moe_installed(moe_convert "$ORIGIN")
  target_link_libraries(moe_convert PUBLIC moe)
  if(BUILD_SHARED_LIBS)  # a static libmoe has all symbols itself
    target_link_libraries(moe_convert PRIVATE $<BUILD_INTERFACE:moe_core>)
  endif()
endif()

if(TARGET moe_serve_objects)
  moe_library(moe_serve $<TARGET_OBJECTS:moe_serve_objects>)
  moe_installed(moe_serve "$ORIGIN")
  target_link_libraries(moe_serve PUBLIC moe PRIVATE $<BUILD_INTERFACE:Threads::Threads>)
endif()

# The core and the writer of model files, for the core's own tests, which then do not wait for the converter.
if(MOE_CONVERT)
  moe_archive(moe_core_tested ${core} $<TARGET_OBJECTS:moe_convert_formats> $<TARGET_OBJECTS:moe_convert_config>)
endif()

# Everything, for the other tests.
moe_archive(moe_internal ${core} ${convert})
