# SPDX-License-Identifier: MIT
# Other people's libraries, as targets moe_dep_*. All come from Debian packages.
if(MOE_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
if(NOT MOE_OS STREQUAL none)
  find_package(Threads REQUIRED)
endif()

# moe_headers(name header): the target moe_dep_<name> with the folder of a header. A compiler that does not search the
# host's /usr/include, as a cross compiler, must not be told to: the folder has the host's C library too. It gets a
# folder with links to what it needs.
function(moe_headers name header)
  find_path(MOE_${name}_INCLUDE ${header} REQUIRED)
  mark_as_advanced(MOE_${name}_INCLUDE)
  set(folder ${MOE_${name}_INCLUDE})
  if(folder MATCHES "^/usr(/local)?/include$" AND NOT folder IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    string(REGEX REPLACE "/.*" "" first ${header})
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/headers)
    string(REGEX REPLACE "\\.h$" "*" pattern ${first})  # zstd.h includes zstd_errors.h, which lies beside it
    file(GLOB found RELATIVE ${folder} ${folder}/${pattern})
    foreach(name_there IN LISTS found)
      file(CREATE_LINK ${folder}/${name_there} ${PROJECT_BINARY_DIR}/headers/${name_there} SYMBOLIC)
    endforeach()
    set(folder ${PROJECT_BINARY_DIR}/headers)
  endif()
  add_library(moe_dep_${name} INTERFACE)
  target_include_directories(moe_dep_${name} SYSTEM INTERFACE ${folder})
endfunction()

# moe_dependency(name header library...): the same with the first library that is found
function(moe_dependency name header)
  moe_headers(${name} ${header})
  find_library(MOE_${name}_LIBRARY NAMES ${ARGN} REQUIRED)
  mark_as_advanced(MOE_${name}_LIBRARY)
  target_link_libraries(moe_dep_${name} INTERFACE ${MOE_${name}_LIBRARY})
endfunction()

# zstd is linked in where its static library is there: one dependency less on a small device.
moe_dependency(zstd zstd.h libzstd.a zstd)
if(MOE_BUNDLE)
  set(bundled_pcre2 libpcre2-8.a)
  set(bundled_utf8proc libutf8proc.a)
endif()
if(MOE_TEXT)
  moe_dependency(pcre2 pcre2.h ${bundled_pcre2} pcre2-8)
  moe_dependency(utf8proc utf8proc.h ${bundled_utf8proc} utf8proc)
endif()
if(MOE_CLI AND MOE_LINE_EDITING AND NOT MOE_STATIC)
  find_path(MOE_edit_INCLUDE histedit.h)
  find_library(MOE_edit_LIBRARY edit)
  if(MOE_edit_INCLUDE AND MOE_edit_LIBRARY)
    moe_dependency(edit histedit.h edit)
  else()
    message(STATUS "libedit was not found: moe chat reads lines without editing them.")
  endif()
endif()
if(MOE_CLI AND MOE_SERVE AND MOE_HTTP AND NOT MOE_STATIC)
  find_path(MOE_microhttpd_INCLUDE microhttpd.h)
  find_library(MOE_microhttpd_LIBRARY microhttpd)
  if(MOE_microhttpd_INCLUDE AND MOE_microhttpd_LIBRARY)
    moe_dependency(microhttpd microhttpd.h microhttpd)
  else()
    message(STATUS "libmicrohttpd was not found: there is no moe serve.")
  endif()
endif()
find_program(MOE_FLATC flatc REQUIRED)
moe_headers(flatbuffers flatbuffers/flatbuffers.h)
moe_headers(xxhash xxhash.h)
if(MOE_CONVERT OR MOE_SERVE OR MOE_CLI OR MOE_TESTS)
  moe_headers(json nlohmann/json.hpp)
endif()
if(MOE_CLI)
  moe_headers(cli11 CLI/CLI.hpp)
endif()

# The headers that the library's own code includes; who links the library needs none of them.
add_library(moe_dep_headers INTERFACE)
target_link_libraries(moe_dep_headers INTERFACE moe_dep_flatbuffers moe_dep_xxhash $<TARGET_NAME_IF_EXISTS:moe_dep_json>)
foreach(name zstd pcre2 utf8proc)
  if(TARGET moe_dep_${name})
    target_include_directories(moe_dep_headers SYSTEM INTERFACE
      $<TARGET_PROPERTY:moe_dep_${name},INTERFACE_SYSTEM_INCLUDE_DIRECTORIES>)
  endif()
endforeach()

# The libraries that every binary with the core links.
add_library(moe_dep_core INTERFACE)
target_link_libraries(moe_dep_core INTERFACE moe_dep_zstd $<TARGET_NAME_IF_EXISTS:Threads::Threads>
  $<$<NOT:$<BOOL:${WIN32}>>:m> ${CMAKE_DL_LIBS}
  $<$<BOOL:${MOE_TEXT}>:moe_dep_pcre2> $<$<BOOL:${MOE_TEXT}>:moe_dep_utf8proc>)
# The same by name, for an installed static library.
set(MOE_CORE_NEEDS zstd m)
if(MOE_OS STREQUAL posix)
  list(APPEND MOE_CORE_NEEDS pthread ${CMAKE_DL_LIBS})
endif()
if(MOE_TEXT)
  list(PREPEND MOE_CORE_NEEDS pcre2-8 utf8proc)
endif()
# An optimised core needs nothing of the C++ library. Otherwise string_view's starts_with() is a call, of a function that may throw;
# also with clang's -Oz.
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
if(NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}" MATCHES "-O[1-3s]")
  set(standard ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(FILTER standard INCLUDE REGEX "^(std)?c[+][+]$")
  list(APPEND MOE_CORE_NEEDS ${standard})
  unset(standard)
endif()
unset(type)
