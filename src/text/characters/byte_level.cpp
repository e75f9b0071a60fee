// SPDX-License-Identifier: MIT
// Computes the alphabet's tables at compile time and writes bytes as its characters.
#include "src/text/characters/byte_level.h"

#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;

struct Tables {
  uint8_t length[256];
  char text[256][2];
  int16_t byte[kAlphabetEnd];
};

constexpr Tables make_tables() {
  Tables t{};
  for (uint32_t c = 0; c < kAlphabetEnd; ++c) t.byte[c] = -1;
  for (uint32_t b = 0; b < 256; ++b) {
    const uint32_t c = byte_to_character(b);
    t.byte[c] = static_cast<int16_t>(b);
    t.length[b] = c < 0x80 ? 1 : 2;
    if (c < 0x80) {
      t.text[b][0] = static_cast<char>(c);
    } else {
      t.text[b][0] = static_cast<char>(0xC0 | (c >> 6));
      t.text[b][1] = static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return t;
}
constexpr Tables kTables = make_tables();

}  // namespace

int character_to_byte(uint32_t code) { return code < kAlphabetEnd ? kTables.byte[code] : -1; }

Status to_byte_level(std::string_view text, Array<char>& out) {
  char chunk[512];
  size_t n = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    chunk[n] = kTables.text[byte][0];
    chunk[n + 1] = kTables.text[byte][1];
    n += kTables.length[byte];
    if (n >= sizeof chunk - 2) {
      MOE_TRY(out.append(chunk, n));
      n = 0;
    }
  }
  return out.append(chunk, n);
}

}  // namespace moe
