// SPDX-License-Identifier: MIT
#pragma once
// How a conversation is sampled where nobody says otherwise: the one place of that policy.

#include "src/model/config.h"
#include "src/run/sampler.h"

namespace moe {

/// Of a model file with `advice`: its settings; without a temperature beside filters 1. Where it
/// says nothing, or only how to penalise, the rest is the library's: temperature 0.8, top_p 0.95,
/// min_p 0.05. Not validated. `context_length`: the longest text.
/// False if the advice is none, or only how to penalise repetitions.
bool advises_sampling(const SamplingAdvice& advice);
SamplingConfig default_sampling(const SamplingAdvice& advice, int32_t context_length);

}  // namespace moe
