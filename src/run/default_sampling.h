// SPDX-License-Identifier: MIT
#pragma once
// How a conversation is sampled where nobody says otherwise: the one place of that policy.

#include "src/model/config.h"
#include "src/run/sampler.h"

namespace moe {

/// True if the checkpoint's settings choose tokens, and do not only penalise repetitions.
bool advises_sampling(const SamplingAdvice& advice);
/// The settings of a conversation with a model whose file has `advice`. They are the file's if
/// advises_sampling(), with temperature 1 if it has only filters; otherwise the library's:
/// temperature 0.8, top_p 0.95, min_p 0.05, with the file's penalty. The values are not validated.
/// `context_length`: the longest text, in tokens.
SamplingConfig default_sampling(const SamplingAdvice& advice, int32_t context_length);

}  // namespace moe
