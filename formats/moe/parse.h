// SPDX-License-Identifier: MIT
#pragma once
// Names from the metadata.

#include <algorithm>

#include "formats/moe/names.h"
#include "formats/moe/schema.h"
#include "src/base/status.h"

namespace moe {

/// The text of a metadata string, or `absent` if null.
inline std::string_view text_of(const flatbuffers::String* text, std::string_view absent = {}) {
  return text == nullptr ? absent : std::string_view(text->c_str(), text->size());
}

/// "unknown router 'x'". Names are untrusted: long ones are truncated.
inline Status unknown_name(const char* what, std::string_view name) {
  return Status::error(MOE_ERR_UNSUPPORTED, "unknown %s '%.*s'", what,
                       static_cast<int>(std::min<size_t>(name.size(), 64)), name.data());
}

template <class E, size_t n>
Status parse_name(const Named<E> (&table)[n], const char* what, std::string_view name, E* out) {
  return parse_in(table, name, out) ? Status() : unknown_name(what, name);
}

}  // namespace moe
