# SPDX-License-Identifier: MIT
# cpack: packages for Debian, from the preset "package": the libraries, what programs are built with, the
# command, and the CUDA module.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moe)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(packager "The moe authors")
set(packager_email moe@localhost)
if(NOT "$ENV{DEBFULLNAME}" STREQUAL "")  # Debian's own names for the packager
  set(packager "$ENV{DEBFULLNAME}")
endif()
if(NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(packager_email "$ENV{DEBEMAIL}")
endif()
set(CPACK_PACKAGE_CONTACT "${packager} <${packager_email}>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_tree.cmake)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)  # with the same version
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

# moe_package(component package section what text needed...): `needed` are components
macro(moe_package component package section what text)
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENT_${upper}_DEPENDS ${ARGN})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "Mixture-of-Experts language models - ${what}\n${text}")
endmacro()
set(CPACK_COMPONENTS_ALL)
moe_package(library libmoe${MOE_ABI_VERSION} libs "libraries"
  "libmoe runs models with ternary, int8 or four-bit weights.\nlibmoe_convert creates model files from checkpoints.\nlibmoe_serve answers many requests at once, in the shapes of an HTTP API.")
# Debian has a libmoe-dev of others. Under that name its newer version would replace ours.
moe_package(development libmoe0-dev libdevel "development files"
  "C header, pkg-config files and CMake package of the libraries of moe." library)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_CONFLICTS libmoe-dev)
if(TARGET moe_cli)
  moe_package(command moe utils "command" "Converts checkpoints, generates text, chats and measures." library)
endif()
if(TARGET moe_cuda)
  moe_package(cuda moe-cuda libs "CUDA module" "libmoe loads it on machines with an NVIDIA GPU." library)
endif()
# The development package holds nothing of others; the CUDA module, NVIDIA's runtime, whose terms come with CUDA.
linked_in(CPACK_MOE_LIBRARY_LINKED_IN)
set(CPACK_MOE_COMMAND_LINKED_IN nlohmann-json3-dev libcli11-dev)
include(CPack)

add_custom_target(moe_packaged)  # all that they hold
foreach(target moe moe_convert moe_serve moe_cli moe_share moe_cuda)
  if(TARGET ${target})
    add_dependencies(moe_packaged ${target})
  endif()
endforeach()
