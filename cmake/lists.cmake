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

moe_list(quant)
moe_list(kernels/router)
