# SPDX-License-Identifier: MIT
# A list of the code has a line per thing, MACRO(Name, "file"), and is read wherever something is made for
# each of them.

# moe_list(folder): beside folder/list.h, of which this is made, all.h includes the files it names
function(moe_list folder)
  set(list ${PROJECT_SOURCE_DIR}/${folder}/list.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^MOE_[A-Z_]+\\(")
  set(includes "#pragma once\n")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "\"(.+)\"" file "${line}")
    string(APPEND includes "#include ${file}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${MOE_GENERATED_DIR}/${folder}/all.h CONTENT "${includes}" @ONLY)
endfunction()

# moe_part_of_list(folder, wanted): beside all.h, of which only the files of `wanted` are included, built.h
# has their lines alone. Names are spelt as model files do; empty: all, "none": none.
function(moe_part_of_list folder wanted variable)
  set(list ${PROJECT_SOURCE_DIR}/${folder}/list.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^MOE_[A-Z_]+\\(")
  set(includes "#pragma once\n")
  set(rows)
  set(names none)
  foreach(line IN LISTS lines)
    string(REGEX MATCH "\\(([A-Za-z0-9]+), *\"(.+)\"\\)" row "${line}")
    set(file ${CMAKE_MATCH_2})
    string(REGEX REPLACE "(.)([A-Z])" "\\1_\\2" name ${CMAKE_MATCH_1})
    string(TOLOWER ${name} name)
    list(APPEND names ${name})
    if(NOT wanted OR name IN_LIST wanted)
      string(APPEND includes "#include \"${file}\"\n")
      string(APPEND rows "${line}\n")
    endif()
  endforeach()
  if(NOT rows)  # nothing else includes what the files do
    string(APPEND includes "#include \"${folder}/info.h\"\n")
  endif()
  foreach(name IN LISTS wanted)
    if(NOT name IN_LIST names)
      message(FATAL_ERROR "${variable}: ${name} is not one of: ${names}")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${MOE_GENERATED_DIR}/${folder}/all.h CONTENT "${includes}" @ONLY)
  file(CONFIGURE OUTPUT ${MOE_GENERATED_DIR}/${folder}/built.h CONTENT "${rows}" @ONLY)
endfunction()

moe_list(quant)
moe_list(kernels/router)
moe_part_of_list(kernels/mixers "${MOE_MIXERS}" MOE_MIXERS)
