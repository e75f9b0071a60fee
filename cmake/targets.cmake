# SPDX-License-Identifier: MIT
# How a folder says what it builds.
set(MOE_WARNINGS -Wconversion -Wsign-conversion)
set(MOE_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)

# moe_objects(target files...): an object library with the flags of all of the library's code
function(moe_objects target)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${target} SYSTEM PRIVATE ${MOE_GENERATED_DIR})
  target_compile_definitions(${target} PRIVATE $<$<PLATFORM_ID:Windows>:MOE_BUILDING>)
  target_link_libraries(${target} PRIVATE moe_dep_headers)
  target_compile_options(${target} PRIVATE ${MOE_WARNINGS}
    -fvisibility=hidden -fvisibility-inlines-hidden -ffunction-sections -fdata-sections
    ${MOE_HARDENING})
  if(TARGET moe_schema)
    add_dependencies(${target} moe_schema)
  endif()
endfunction()

# moe_add_core_library(name files...): the object library moe_<name>, part of libmoe
function(moe_add_core_library name)
  moe_objects(moe_${name} ${ARGN})
  target_compile_options(moe_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti>)
  # Nothing is thrown through the core: where size counts, it has no tables for it.
  target_compile_options(moe_${name} PRIVATE
    $<$<CONFIG:MinSizeRel>:-fno-unwind-tables -fno-asynchronous-unwind-tables>)
  set_target_properties(moe_${name} PROPERTIES
    UNITY_BUILD ${MOE_UNITY_CORE} UNITY_BUILD_BATCH_SIZE 20)
  if(MOE_UNITY_CORE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # gcc takes the included files for headers
    target_compile_options(moe_${name} PRIVATE -Wno-subobject-linkage)
  endif()
  set_property(GLOBAL APPEND PROPERTY MOE_CORE_OBJECTS $<TARGET_OBJECTS:moe_${name}>)
endfunction()

# The options of files whose loops over weights should become vector instructions. At -O2 gcc leaves loops with
# conditions in them as branches. No result changes: nothing is reordered, and nobody looks at floating-point exception
# flags. A quick build optimises them too.
set(MOE_VECTORISED "$<$<BOOL:${MOE_QUICK_BUILD}>:-O2>;$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release,RelWithDebInfo>>:-O3;-fno-trapping-math>")

# moe_vectorise(files...): these files have them. Each is compiled alone.
function(moe_vectorise)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${MOE_VECTORISED}")
endfunction()

# moe_together(name files...): sets the variable to these files of a library, which are compiled as
# one, because reading what they include takes most of the time. No two may define the same name.
function(moe_together name)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${name})
  set(${name} ${ARGN} PARENT_SCOPE)
endfunction()

# moe_add_convert_library(name files...): the object library moe_convert_<name>, part of
# libmoe_convert; exceptions and RTTI are allowed. Nothing where the converter is switched off.
function(moe_add_convert_library name)
  if(MOE_CONVERT)
    moe_objects(moe_convert_${name} ${ARGN})
    set_target_properties(moe_convert_${name} PROPERTIES
      UNITY_BUILD ${MOE_UNITY} UNITY_BUILD_MODE GROUP)
    target_compile_options(moe_convert_${name} PRIVATE ${MOE_QUICK_OPTIONS})
    set_property(GLOBAL APPEND PROPERTY MOE_CONVERT_OBJECTS $<TARGET_OBJECTS:moe_convert_${name}>)
  endif()
endfunction()

# moe_flatbuffers(schema.fbs [flatc options...]): generates <folder>/<schema>_generated.h at build
# time; include it from the root. Call it before the libraries are added that need it.
function(moe_flatbuffers schema)
  cmake_path(GET schema STEM stem)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
             OUTPUT_VARIABLE folder)
  set(header ${MOE_GENERATED_DIR}/${folder}/${stem}_generated.h)
  add_custom_command(OUTPUT ${header}
    COMMAND ${MOE_FLATC} --cpp ${ARGN} -o ${MOE_GENERATED_DIR}/${folder}
            ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
    DEPENDS ${schema} COMMENT "flatc ${folder}/${schema}" VERBATIM)
  add_custom_target(moe_schema_${stem} DEPENDS ${header})
  if(NOT TARGET moe_schema)
    add_custom_target(moe_schema)
  endif()
  add_dependencies(moe_schema moe_schema_${stem})
endfunction()
