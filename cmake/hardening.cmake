# SPDX-License-Identifier: MIT
# These flags turn a fault in memory into an end rather than somebody else's program. Sanitizers watch
# memory themselves, and bring functions that these flags know nothing of.
include(CheckCXXCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)
check_pie_supported()  # programs are linked as their objects are compiled: position-independent, except with MOE_STATIC

# The flags of what is installed, as far as a host compiler compiles it (nvcc's own code is not hardened).
set(MOE_HARDENING)
if(NOT MOE_SANITIZE)
  set(flags)
  set(protections stack-protector-strong)
  if(NOT MOE_STATIC)  # Debian's libc.a is not marked for it, so that no such program would have it
    list(APPEND protections cf-protection)  # on x86-64 alone
  endif()
  foreach(flag IN LISTS protections)
    string(MAKE_C_IDENTIFIER MOE_HAS_${flag} known)
    check_cxx_compiler_flag(-f${flag} ${known})
    if(${known})
      list(APPEND flags -f${flag})
    endif()
  endforeach()
  # Some compilers define it themselves. Without optimisation it does nothing but warn.
  set(optimised $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
  list(APPEND flags $<${optimised}:-U_FORTIFY_SOURCE> $<${optimised}:-D_FORTIFY_SOURCE=2>)
  list(TRANSFORM flags REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:C,CXX>:\\1>" OUTPUT_VARIABLE MOE_HARDENING)
endif()

# moe_known(result flags...): those flags that the linker knows
function(moe_known result)
  set(known)
  foreach(flag IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER MOE_LINKS${flag} has)
    check_linker_flag(CXX ${flag} ${has})
    if(${has})
      list(APPEND known ${flag})
    endif()
  endforeach()
  set(${result} ${known} PARENT_SCOPE)
endfunction()
moe_known(flags -Wl,-z,relro,-z,now)
add_link_options(${flags})
