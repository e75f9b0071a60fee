// SPDX-License-Identifier: MIT
// The filters of sampling that commands offer, one per line: the field of moe_sampling, which is
// also the key in JSON, the option without its dashes, the number that switches it off, its range
// and which end of the range does not belong to it, and the text of the help. The including
// file defines MOE_SAMPLING_FILTER.

// clang-format off
MOE_SAMPLING_FILTER(top_p, "top-p", 1, 0, 1, Bound::kLow, "Sample from the smallest set of tokens whose probabilities add up to X; 1: off")
MOE_SAMPLING_FILTER(min_p, "min-p", 0, 0, 1, Bound::kHigh, "Drop tokens less probable than X times the best one; 0: off")
// clang-format on

#undef MOE_SAMPLING_FILTER
