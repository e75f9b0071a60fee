# SPDX-License-Identifier: MIT
# libmoe and libmoe_cuda share C++ types. What names the build is the text of these headers.
set(shared_headers kernels/device.h kernels/sample.h kernels/kinds.h kernels/mixers/info.h kernels/mixers/list.h kernels/router/router.h kernels/router/list.h
    kernels/cuda/module.h quant/format.h quant/list.h src/base/status.h src/base/allocator.h src/base/log.h
    include/moe_c.h)
set(all_text)
foreach(header IN LISTS shared_headers)
  file(SHA256 ${PROJECT_SOURCE_DIR}/${header} hash)
  string(APPEND all_text ${hash})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${shared_headers})
string(SHA256 hash "${all_text}")
string(SUBSTRING ${hash} 0 16 hash)
set(MOE_MODULE_DEFINITION MOE_MODULE_BUILD="${hash}")

# MOE_CUDA asks for the module; without a compiler for it there is none, and it is said.
set(MOE_BUILD_CUDA OFF)
if(MOE_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(NOTICE "MOE_CUDA: no nvcc found: libmoe_cuda is not built.")
  else()
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 80-virtual 90-virtual)
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know how nvcc 13 is told of C++20.
    foreach(kind STANDARD EXTENSION)
      if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
        set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
      endif()
    endforeach()
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
      message(NOTICE "MOE_CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION} found, 12 or newer needed: "
                     "libmoe_cuda is not built.")
    else()
      set(MOE_BUILD_CUDA ON)
      find_package(CUDAToolkit REQUIRED)
      message(NOTICE "MOE_CUDA: libmoe_cuda is built by nvcc ${CMAKE_CUDA_COMPILER_VERSION} and "
                     "linked; nothing of it runs without a GPU.")
    endif()
  endif()
endif()
