# SPDX-License-Identifier: MIT
# cmake --install: libraries, header, the command with its man page and completion, pkg-config files and a CMake package.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moe)
set(MOE_ZSH_FOLDER ${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions CACHE STRING "Where zsh finds completions")
set(installed moe)
if(TARGET moe_convert)
  list(APPEND installed moe_convert)
endif()
if(TARGET moe_serve)
  list(APPEND installed moe_serve)
endif()
install(TARGETS ${installed} EXPORT moe
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(TARGET moe_cuda)
  install(TARGETS moe_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
endif()
install(FILES include/moe_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
set(held)
if(TARGET moe_cli)
  set(held COMMAND)
endif()
linked_in(held ${held})
notices(${PROJECT_BINARY_DIR}/share/LICENSE OPTIONAL ${held})
install(FILES ${PROJECT_BINARY_DIR}/share/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)

# moe_written(folder file arguments...): a file that the command writes itself, and where it is installed
function(moe_written folder file)
  set(path ${PROJECT_BINARY_DIR}/share/${file})
  add_custom_command(OUTPUT ${path} COMMAND moe_cli ${ARGN} > ${path} DEPENDS moe_cli COMMENT "share/${file}")
  set_property(GLOBAL APPEND PROPERTY MOE_WRITTEN ${path})
  install(FILES ${path} DESTINATION ${folder} COMPONENT command)
endfunction()
if(TARGET moe_cli AND NOT CMAKE_CROSSCOMPILING AND NOT MOE_SANITIZE)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share)
  moe_written(${CMAKE_INSTALL_MANDIR}/man1 moe.1 man)
  moe_written(${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions moe completion bash)
  moe_written(${MOE_ZSH_FOLDER} _moe completion zsh)
  moe_written(${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d moe.fish completion fish)
  get_property(written GLOBAL PROPERTY MOE_WRITTEN)
  add_custom_target(moe_share ALL DEPENDS ${written})
endif()

# The pkg-config files name their folders relative to themselves, so that a prefix can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE MOE_PREFIX_FROM_PC
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
list(TRANSFORM MOE_CORE_NEEDS PREPEND -l OUTPUT_VARIABLE MOE_LIBS_PRIVATE)
list(JOIN MOE_LIBS_PRIVATE " " MOE_LIBS_PRIVATE)
foreach(name ${installed})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moe-config-version.cmake
  COMPATIBILITY ${MOE_COMPATIBILITY})
install(FILES cmake/moe-config.cmake ${PROJECT_BINARY_DIR}/moe-config-version.cmake
        DESTINATION ${package_dir} COMPONENT development)
install(EXPORT moe NAMESPACE moe:: FILE moe-targets.cmake DESTINATION ${package_dir} COMPONENT development)
if(PROJECT_IS_TOP_LEVEL)
  include(cmake/packages.cmake)
endif()
