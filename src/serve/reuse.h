// SPDX-License-Identifier: MIT
#pragma once
// Which beginning of a prompt is already evaluated, and in which slot.

#include <optional>
#include <vector>

#include "src/serve/slot.h"

namespace moe_serve {

/// Where a prompt goes, and what it need not evaluate.
struct Reuse {
  Slot* target = nullptr;  // free
  Slot* source = nullptr;  // holds the prompt's beginning; may be the target
  size_t n_tokens = 0;     // of the beginning; the last token of a prompt is always evaluated
};

/// The place for a prompt in one of the free slots, of which there is at least one; none if waiting
/// is better, because another slot is reading a prompt with the same beginning.
std::optional<Reuse> find_reuse(std::vector<Slot>& slots, const std::vector<int32_t>& prompt);

}  // namespace moe_serve
