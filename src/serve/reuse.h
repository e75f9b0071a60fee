// SPDX-License-Identifier: MIT
#pragma once
// Finds the beginning of a prompt that is already evaluated, and the slot or file that has it.

#include <optional>
#include <vector>

#include "src/serve/slot.h"
#include "src/serve/state_folder.h"

namespace moe_serve {

/// Where a prompt goes, and what it need not evaluate.
struct Reuse {
  Slot* target = nullptr;  // free
  Slot* source = nullptr;  // holds the prompt's beginning; may be the target; null: `file` does
  size_t n_tokens = 0;     // of the beginning; the last token of a prompt is always evaluated
  size_t file = 0;         // of the folder
};

/// The place for a prompt in one of the free slots, of which there is at least one; none if waiting
/// is better, because another slot is reading a prompt with the same beginning. folder: or null.
std::optional<Reuse> find_reuse(std::vector<Slot>& slots, const std::vector<int32_t>& prompt,
                                const StateFolder* folder);

}  // namespace moe_serve
