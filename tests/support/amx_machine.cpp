// SPDX-License-Identifier: MIT
// AMX on CPUs that have AVX-512 but no AMX: with MOE_TEST_AMX=1 the library finds AMX, and its tile
// instructions, which raise SIGILL, are executed here (Intel's manual, volume 2, "AMX"). Loads and
// stores see what memory holds at that moment, and AddressSanitizer checks them.
//
// Linked with --wrap for cpu_has_amx() and allow_amx() of kernels/cpu/features.h.

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/features.h"

namespace {

constexpr int kTiles = 8;
constexpr int kMaxRows = 16;
constexpr int kMaxRowBytes = 64;

struct Tile {
  int rows = 0;
  int row_bytes = 0;
  uint8_t data[kMaxRows][kMaxRowBytes] = {};
};

/// The registers of one thread.
struct Tiles {
  bool configured = false;
  Tile tile[kTiles];
};
thread_local Tiles tiles;

[[noreturn]] void stop(const char* why) {
  const char start[] = "AMX instruction: ";
  if (write(2, start, sizeof start - 1) < 0 || write(2, why, std::strlen(why)) < 0 ||
      write(2, "\n", 1) < 0) {
    std::abort();
  }
  std::abort();
}

struct Memory {
  uint8_t* base;   // address without the index
  int64_t stride;  // the index register times its scale; 0: none
};

/// One instruction: VEX.128 in map 0F38 with W 0.
struct Instruction {
  int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
  int opcode;
  int vvvv;
  int mod;
  int reg;
  int rm;
  int length;
  Memory memory;
};

/// Register n as the instructions count them.
int64_t general_register(const ucontext_t& context, int n) {
  constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[kPlaces[n]];
}

template <class T>
T read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// False: not an instruction of AMX.
bool decode(const ucontext_t& context, Instruction& out) {
  const auto* code = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x84) != 0) return false;
  const int more_reg = (code[1] & 0x80) != 0 ? 0 : 8;
  const int more_index = (code[1] & 0x40) != 0 ? 0 : 8;
  const int more_base = (code[1] & 0x20) != 0 ? 0 : 8;
  out.prefix = code[2] & 3;
  out.vvvv = (code[2] >> 3 & 15) ^ 15;
  out.opcode = code[3];
  if (out.opcode != 0x49 && out.opcode != 0x4B && out.opcode != 0x5E) return false;
  const uint8_t modrm = code[4];
  out.mod = modrm >> 6;
  out.reg = (modrm >> 3 & 7) + more_reg;
  out.rm = (modrm & 7) + more_base;
  const uint8_t* at = code + 5;
  out.memory = {};
  if (out.mod != 3) {
    int64_t base = 0;
    bool from_rip = false;
    if ((modrm & 7) == 4) {
      const uint8_t sib = *at++;
      const int index = (sib >> 3 & 7) + more_index;
      if (index != 4) out.memory.stride = general_register(context, index) * (1 << (sib >> 6));
      if ((sib & 7) != 5 || out.mod != 0) {
        base = general_register(context, (sib & 7) + more_base);
      } else {
        base = read<int32_t>(at);
        at += 4;
      }
    } else if ((modrm & 7) == 5 && out.mod == 0) {
      from_rip = true;
      base = read<int32_t>(at);
      at += 4;
    } else {
      base = general_register(context, out.rm);
    }
    if (out.mod == 1) {
      base += read<int8_t>(at);
      at += 1;
    } else if (out.mod == 2) {
      base += read<int32_t>(at);
      at += 4;
    }
    if (from_rip) base += reinterpret_cast<int64_t>(at);
    out.memory.base = reinterpret_cast<uint8_t*>(base);
  }
  out.length = static_cast<int>(at - code);
  return true;
}

Tile& tile_of(int n) {
  if (n >= kTiles) stop("no such tile register");
  if (!tiles.configured) stop("used before ldtilecfg");
  Tile& tile = tiles.tile[n];
  if (tile.rows == 0) stop("a tile register without a shape");
  return tile;
}

void load_configuration(const uint8_t* from) {
  if (from[0] != 1) stop("ldtilecfg: palette other than 1");
  tiles = {};
  tiles.configured = true;
  for (int i = 0; i < kTiles; ++i) {
    Tile& tile = tiles.tile[i];
    tile.row_bytes = read<uint16_t>(from + 16 + 2 * i);
    tile.rows = from[48 + i];
    if (tile.rows > kMaxRows || tile.row_bytes > kMaxRowBytes) stop("ldtilecfg: shape too large");
    if ((tile.rows == 0) != (tile.row_bytes == 0)) stop("ldtilecfg: half a shape");
  }
}

/// sums(m, n) += the products of bytes (m, 4k + i) of `a` and (k, 4n + i) of `b`.
void multiply_add(Tile& sums, const Tile& a, const Tile& b, bool a_signed, bool b_signed) {
  if (sums.rows != a.rows || sums.row_bytes != b.row_bytes || a.row_bytes != 4 * b.rows) {
    stop("shapes that do not match");
  }
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      auto sum = read<uint32_t>(sums.data[m] + 4 * n);
      for (int k = 0; k < b.rows; ++k) {
        for (int i = 0; i < 4; ++i) {
          const uint8_t x = a.data[m][4 * k + i];
          const uint8_t y = b.data[k][4 * n + i];
          const int left = a_signed ? static_cast<int8_t>(x) : x;
          const int right = b_signed ? static_cast<int8_t>(y) : y;
          sum += static_cast<uint32_t>(left * right);
        }
      }
      std::memcpy(sums.data[m] + 4 * n, &sum, sizeof sum);
    }
  }
}

/// False: not one of those emulated.
bool execute(const Instruction& in) {
  constexpr int kNone = 0, k66 = 1, kF3 = 2, kF2 = 3;
  const bool in_memory = in.mod != 3;
  if (in.opcode == 0x49 && in.prefix == kNone && in_memory) {
    load_configuration(in.memory.base + in.memory.stride);
  } else if (in.opcode == 0x49 && in.prefix == kNone) {
    tiles = {};
  } else if (in.opcode == 0x49 && in.prefix == kF2 && !in_memory) {
    Tile& tile = tile_of(in.reg);
    std::memset(tile.data, 0, sizeof tile.data);
  } else if (in.opcode == 0x4B && (in.prefix == kF2 || in.prefix == k66) && in_memory) {
    Tile& tile = tile_of(in.reg);
    std::memset(tile.data, 0, sizeof tile.data);
    for (int row = 0; row < tile.rows; ++row) {
      const uint8_t* from = in.memory.base + row * in.memory.stride;
      for (int i = 0; i < tile.row_bytes; ++i) tile.data[row][i] = from[i];
    }
  } else if (in.opcode == 0x4B && in.prefix == kF3 && in_memory) {
    const Tile& tile = tile_of(in.reg);
    for (int row = 0; row < tile.rows; ++row) {
      uint8_t* to = in.memory.base + row * in.memory.stride;
      for (int i = 0; i < tile.row_bytes; ++i) to[i] = tile.data[row][i];
    }
  } else if (in.opcode == 0x5E && !in_memory) {
    if (in.reg == in.rm || in.reg == in.vvvv || in.rm == in.vvvv) stop("one tile register twice");
    multiply_add(tile_of(in.reg), tile_of(in.rm), tile_of(in.vvvv),
                 in.prefix == kF2 || in.prefix == kF3, in.prefix == kF2 || in.prefix == k66);
  } else {
    return false;
  }
  return true;
}

void on_illegal_instruction(int, siginfo_t*, void* user) {
  auto& context = *static_cast<ucontext_t*>(user);
  Instruction in = {};
  if (!decode(context, in) || !execute(in)) {
    signal(SIGILL, SIG_DFL);  // it is raised again
    return;
  }
  context.uc_mcontext.gregs[REG_RIP] += in.length;
}

}  // namespace

// The names that --wrap gives to moe::cpu_has_amx() and moe::allow_amx() and to what refers to
// them.
extern "C" bool __real__ZN3moe11cpu_has_amxEv();
extern "C" bool __real__ZN3moe9allow_amxEv();
extern "C" bool __wrap__ZN3moe11cpu_has_amxEv();
extern "C" bool __wrap__ZN3moe9allow_amxEv();

bool __wrap__ZN3moe11cpu_has_amxEv() {
  const char* wanted = std::getenv("MOE_TEST_AMX");
  const bool emulate = wanted != nullptr && wanted[0] == '1' && moe::cpu_has_avx512vnni();
  return emulate || __real__ZN3moe11cpu_has_amxEv();
}

bool __wrap__ZN3moe9allow_amxEv() {
  if (__real__ZN3moe11cpu_has_amxEv()) return __real__ZN3moe9allow_amxEv();
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGILL, &action, nullptr) == 0;
}
