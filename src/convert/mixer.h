// SPDX-License-Identifier: MIT
#pragma once
// Mixers by name, which a build may leave out.

#include "formats/import/failure.h"
#include "kernels/mixers/table.h"

namespace moe {

/// The mixer with its defaults. Throws MOE_ERR_UNSUPPORTED if it is not in this build.
inline MixerConfig built_mixer(const char* name) {
  const MixerInfo* const info = find_mixer(name);
  if (info == nullptr) fail(MOE_ERR_UNSUPPORTED, "the mixer %s is not in this build", name);
  return default_mixer(*info);
}

}  // namespace moe
