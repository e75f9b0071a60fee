# What turns a fault in memory into an end rather than somebody else's program. Sanitizers watch
# memory themselves, and bring functions that these flags know nothing of.
include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported()  # programs are linked as position-independent, as their objects are compiled

# The flags of what is installed, as far as a host compiler compiles it (nvcc's own code is not hardened).
set(MOE_HARDENING)
if(NOT MOE_SANITIZE)
  set(flags)
  foreach(flag stack-protector-strong cf-protection)  # the latter on x86-64 alone
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
add_link_options(-Wl,-z,relro,-z,now)
