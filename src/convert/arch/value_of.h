// SPDX-License-Identifier: MIT
#pragma once
// A configuration's words by the tables of names.

#include <string>

#include "formats/import/json.h"
#include "src/model/names.h"

namespace moe {

/// The value named by the string, from row `first` on; the error lists them.
template <class E, size_t n>
E value_of(const JsonNode& node, const Named<E> (&table)[n], size_t first = 0) {
  std::string known;
  for (size_t i = first; i < n; ++i) {
    if (node.value().is_string() && node.string() == table[i].name) return table[i].value;
    known += (i == first ? "one of " : ", ") + std::string(table[i].name);
  }
  node.fail_expected(known);
}

}  // namespace moe
