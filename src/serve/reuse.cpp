// SPDX-License-Identifier: MIT
// Chooses slots so that few tokens are evaluated again and few kept ones are lost.
#include "src/serve/reuse.h"

#include <algorithm>

namespace moe_serve {
namespace {

// Fewer tokens than this are sooner evaluated than copied or waited for.
constexpr size_t kWorthwhile = 16;

// The tokens of a prompt but the last that another text begins with.
size_t common(const std::vector<int32_t>& prompt, const std::vector<int32_t>& text) {
  const size_t n = std::min(prompt.size() - 1, text.size());
  const auto end = prompt.begin() + static_cast<std::ptrdiff_t>(n);
  return static_cast<size_t>(std::mismatch(prompt.begin(), end, text.begin()).first -
                             prompt.begin());
}

struct Choice {
  Slot* slot = nullptr;
  size_t n_common = 0;
  size_t n_lost() const { return slot->held.size() - n_common; }
};

}  // namespace

std::optional<Reuse> find_reuse(std::vector<Slot>& slots, const std::vector<int32_t>& prompt) {
  Choice best;      // has the longest beginning, and is free if possible
  Choice oldest;    // free, and its text was used the longest time ago
  size_t soon = 0;  // tokens of the beginning that a slot will have read
  int n_free = 0;
  for (Slot& slot : slots) {
    const Choice choice = {&slot, common(prompt, slot.held)};
    const bool longer = best.slot == nullptr || choice.n_common > best.n_common;
    const bool as_long = !longer && choice.n_common == best.n_common;
    if (longer ||
        (as_long && slot.free() && (!best.slot->free() || choice.n_lost() < best.n_lost()))) {
      best = choice;
    }
    if (!slot.free()) {
      if (!slot.generating) soon = std::max(soon, common(prompt, slot.place.text->prompt()));
      continue;
    }
    ++n_free;
    if (oldest.slot == nullptr || slot.last_use < oldest.slot->last_use) oldest = choice;
  }
  if (soon >= best.n_common + kWorthwhile) return std::nullopt;
  // A slot that would lose more than it gives is copied instead, if there is another for the copy.
  const bool in_place = best.slot->free() && (n_free == 1 || best.n_lost() <= best.n_common);
  if (in_place) return Reuse{best.slot, best.slot, best.n_common};
  if (best.n_common >= oldest.n_common + kWorthwhile) {
    return Reuse{oldest.slot, best.slot, best.n_common};
  }
  return Reuse{oldest.slot, oldest.slot, oldest.n_common};
}

}  // namespace moe_serve
