# SPDX-License-Identifier: MIT
# Other people's libraries, as targets moe_dep_*. All come from Debian packages.
if(MOE_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
find_package(Threads REQUIRED)

# moe_dependency(name header library...): the first library that is found
function(moe_dependency name header)
  find_path(MOE_${name}_INCLUDE ${header} REQUIRED)
  find_library(MOE_${name}_LIBRARY NAMES ${ARGN} REQUIRED)
  mark_as_advanced(MOE_${name}_INCLUDE MOE_${name}_LIBRARY)
  add_library(moe_dep_${name} INTERFACE)
  target_include_directories(moe_dep_${name} SYSTEM INTERFACE ${MOE_${name}_INCLUDE})
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
find_program(MOE_FLATC flatc REQUIRED)

# What every binary that holds the core links.
add_library(moe_dep_core INTERFACE)
target_link_libraries(moe_dep_core INTERFACE moe_dep_zstd Threads::Threads m
  $<$<BOOL:${MOE_TEXT}>:moe_dep_pcre2> $<$<BOOL:${MOE_TEXT}>:moe_dep_utf8proc>)
# The same by name, for an installed static library.
set(MOE_CORE_NEEDS zstd m pthread dl)
if(MOE_TEXT)
  list(PREPEND MOE_CORE_NEEDS pcre2-8 utf8proc)
endif()
