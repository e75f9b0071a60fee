// SPDX-License-Identifier: MIT
#pragma once
// Translates character classes and properties of Oniguruma to PCRE2.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Knows scripts: true if PCRE2 has \p{sc:name}.
struct ScriptNames {
  bool (*is_script)(void* user, std::string_view name);
  void* user;
  bool has(std::string_view name) const { return is_script(user, name); }
};

/// Characters of a word: Oniguruma's \w, between brackets.
inline constexpr std::string_view kWordItems = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
inline constexpr std::string_view kHexItems = "0-9A-Fa-f";

/// Appends the class at in[*at], which is '[', as a pattern that matches one character, and moves
/// *at behind it. Classes in it, && and negations are written with lookaheads, since PCRE2 has no
/// such operations. MOE_ERR_UNSUPPORTED names what the two libraries behind `tokenizers` read
/// differently (-- and ~~), and operations that ignore_case would change.
Status class_to_pcre2(std::string_view in, size_t* at, bool ignore_case, const ScriptNames& scripts,
                      Array<char>& out);

/// Appends the property at in[*at], "\p{...}" or "\P{...}", as items between brackets; *negated
/// says whether they are those to be left out. Moves *at behind it.
Status property_items(std::string_view in, size_t* at, const ScriptNames& scripts, bool* negated,
                      Array<char>& out);

/// The escape at in[*at], "\x41", "\u0041", "\n" ..., as a character. False if it is none. Bytes of
/// UTF-8, "\xC3\xA9", are one character.
bool read_escaped(std::string_view in, size_t* at, uint32_t* code);

/// Appends a character, escaped where it has a meaning in a pattern.
Status put_character(uint32_t code, Array<char>& out);

}  // namespace moe
