# cmake --install: libraries, header, man page, pkg-config files and a CMake package.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moe)
set(installed moe)
if(TARGET moe_convert)
  list(APPEND installed moe_convert)
endif()
install(TARGETS ${installed} EXPORT moe LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET moe_cuda)
  install(TARGETS moe_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES include/moe_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET moe_cli)
  find_program(MOE_HELP2MAN help2man)
  if(MOE_HELP2MAN AND NOT CMAKE_CROSSCOMPILING AND NOT MOE_SANITIZE)
    set(man_page ${PROJECT_BINARY_DIR}/share/man/man1/moe.1)
    add_custom_command(OUTPUT ${man_page}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/share/man/man1
      COMMAND ${MOE_HELP2MAN} --no-info --name "run Mixture-of-Experts language models"
              --output ${man_page} $<TARGET_FILE:moe_cli>
      DEPENDS moe_cli COMMENT "Man page" VERBATIM)
    add_custom_target(moe_man ALL DEPENDS ${man_page})
    install(FILES ${man_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()

# The pkg-config files name their folders relative to themselves, so that a prefix can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE MOE_PREFIX_FROM_PC
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
list(TRANSFORM MOE_CORE_NEEDS PREPEND -l OUTPUT_VARIABLE MOE_LIBS_PRIVATE)
list(JOIN MOE_LIBS_PRIVATE " " MOE_LIBS_PRIVATE)
foreach(name ${installed})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moe-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES cmake/moe-config.cmake ${PROJECT_BINARY_DIR}/moe-config-version.cmake
        DESTINATION ${package_dir})
install(EXPORT moe NAMESPACE moe:: FILE moe-targets.cmake DESTINATION ${package_dir})
