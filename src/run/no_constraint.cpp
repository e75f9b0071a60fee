// SPDX-License-Identifier: MIT
// Generation in a build without grammars (MOE_GRAMMAR=OFF): every token may follow.
#include "src/run/constraint.h"

namespace moe {

Status Constraint::init(std::span<const int32_t>) { return {}; }
void Constraint::prime(const StreamDecoder&) {}
Status Constraint::ban(std::span<float>) { return {}; }
Status Constraint::check(std::span<const float>, int32_t) const { return {}; }
Status Constraint::take_ahead(int32_t) { return {}; }

Status Constraint::take(int32_t, std::string_view, bool* ends) {
  *ends = false;
  return {};
}

Status Constraint::draft(size_t, int32_t*, size_t* n) {
  *n = 0;
  return {};
}

}  // namespace moe
