// SPDX-License-Identifier: MIT
// This process and its CPU, as POSIX systems tell.
#include "src/base/os/machine.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#include <sys/types.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace moe {

int process_id() { return static_cast<int>(getpid()); }

uint64_t random_bits() {
  uint64_t bits = 0;
  const int file = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  const bool random = file >= 0 && read(file, &bits, sizeof bits) == sizeof bits;
  if (file >= 0) ::close(file);
  if (random) return bits;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return (static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(now.tv_sec)) *
             0x9E3779B97F4A7C15u +
         static_cast<uint64_t>(getpid());
}

#if defined(__aarch64__) && defined(__APPLE__)

ArmFeatures arm_features() {
  const auto has = [](const char* name) {
    int value = 0;
    size_t bytes = sizeof value;
    return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value != 0;
  };
  return {.dotprod = has("hw.optional.arm.FEAT_DotProd"), .i8mm = has("hw.optional.arm.FEAT_I8MM")};
}

#elif defined(__aarch64__)

ArmFeatures arm_features() {
  unsigned long words[2] = {0, 0};
#if defined(__FreeBSD__)
  (void)elf_aux_info(AT_HWCAP, &words[0], sizeof words[0]);
  (void)elf_aux_info(AT_HWCAP2, &words[1], sizeof words[1]);
#else
  words[0] = getauxval(AT_HWCAP);
  words[1] = getauxval(AT_HWCAP2);
#endif
  return {.dotprod = (words[0] & 1ul << 20) != 0,  // HWCAP_ASIMDDP
          .i8mm = (words[1] & 1ul << 13) != 0};    // HWCAP2_I8MM
}

#else

ArmFeatures arm_features() { return {}; }

#endif

bool request_tile_registers() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace moe
