// SPDX-License-Identifier: MIT
#pragma once
// GPT-2's alphabet: every byte as a printable character.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// The character (below U+0144) that represents a byte.
constexpr uint32_t byte_to_character(uint32_t byte) {
  if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE) return byte;
  if (byte <= 0x20) return 0x100 + byte;
  return byte == 0xAD ? 0x143 : 0x100 + byte - 0x7F + 0x21;
}

/// The byte that a character represents, or -1.
int character_to_byte(uint32_t code);

/// Appends the characters of all bytes of `text`.
Status to_byte_level(std::string_view text, Array<char>& out);

}  // namespace moe
