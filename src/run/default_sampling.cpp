// SPDX-License-Identifier: MIT
// Takes a model file's advice; without any, moderate filters that keep small models from repeating
// themselves.
#include "src/run/default_sampling.h"

namespace moe {

bool advises_sampling(const SamplingAdvice& advice) {
  bool any = advice.temperature >= 0 || advice.top_k != 0;
#define MOE_SAMPLING_FILTER(name, off, range, text) any = any || advice.name != off;
#include "src/model/sampling_list.h"
  return any;
}

SamplingConfig default_sampling(const SamplingAdvice& advice, int32_t context_length) {
  SamplingConfig out;
  out.repetition_penalty = advice.repetition_penalty;
  if (advice.repetition_penalty != 1) {
    out.repetition_window =
        advice.repetition_window == 0 ? context_length : advice.repetition_window;
  }
  if (!advises_sampling(advice)) {
    // A small model at temperature 0 repeats itself, at 1 without filters it loses the thread.
    out.temperature = 0.8f;
    out.top_p = 0.95f;
    out.min_p = 0.05f;
    return out;
  }
  out.temperature = advice.temperature < 0 ? 1 : advice.temperature;
  out.top_k = advice.top_k;
#define MOE_SAMPLING_FILTER(name, off, range, text) out.name = advice.name;
#include "src/model/sampling_list.h"
  return out;
}

}  // namespace moe
