// SPDX-License-Identifier: MIT
// Every filter of sampling that one number sets, in the order in which they apply, one per line:
// its name in the C API and in the model file, the number that switches it off, the range of the
// number x, and how messages call that range. In the C API 0 means off for each of them. Who
// includes this defines MOE_SAMPLING_FILTER.

// clang-format off
// The smallest set of tokens, best first, whose share of those left by top-k reaches x.
MOE_SAMPLING_FILTER(top_p, 1, x > 0 && x <= 1, "above 0, at most 1")
// The tokens of at least x times the best token's probability.
MOE_SAMPLING_FILTER(min_p, 0, x >= 0 && x < 1, "at least 0, below 1")
// clang-format on

#undef MOE_SAMPLING_FILTER
