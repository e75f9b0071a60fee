# SPDX-License-Identifier: MIT
# Run by cpack before it packs the folders of the packages: what Debian asks of each.
include(${CMAKE_CURRENT_LIST_DIR}/notices.cmake)
# The date of SOURCE_DATE_EPOCH, where that is set.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)

# Libraries that the loader finds by itself need no path.
function(drop_run_paths tree)
  file(GLOB programs ${tree}/bin/* ${tree}/lib/*/lib*.so ${tree}/lib/*/lib*.so.*)
  foreach(program IN LISTS programs)
    if(NOT IS_SYMLINK ${program})
      file(RPATH_REMOVE FILE ${program})
    endif()
  endforeach()
endfunction()

function(compress)
  foreach(file IN LISTS ARGN)
    execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()

# document(folder package linked_in...)
function(document folder package)
  notices(${folder}/copyright ${ARGN})
  file(WRITE ${folder}/changelog
    "${package} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../CHANGELOG.md ${folder}/NEWS COPYONLY)
  compress(${folder}/changelog ${folder}/NEWS)
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(tree ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  drop_run_paths(${tree})
  file(GLOB pages ${tree}/share/man/*/*.[0-9])
  compress(${pages})
  document(${tree}/share/doc/${package} ${package} ${CPACK_MOE_${upper}_LINKED_IN})
endforeach()
